"""check_documents.py finds each kind of violation, and accepts what is allowed."""

import tempfile
import unittest
from pathlib import Path

from check_documents import GLOSSARY, anchors, lengths, links, main, marked_terms, mentions, sentences, terms


def messages(found):
    return [item[-1] for item in found]


class LengthsTest(unittest.TestCase):
    def test_a_line_has_160_characters_at_most(self):
        self.assertEqual(list(lengths("docs/guide/a.md", "x" * 160)), [])
        self.assertEqual(list(lengths("docs/guide/a.md", "ü" * 160)), [])  # characters, not bytes
        self.assertEqual([number for number, _ in lengths("docs/lab/a.md", "a\n" + "x" * 161)], [2])

    def test_documents_have_limits_of_words(self):
        for path, limit in [("README.md", 900), ("docs/guide/a.md", 2500), ("docs/kernels/a.md", 2000)]:
            self.assertEqual(list(lengths(path, "word\n" * limit)), [], path)
            self.assertEqual(len(list(lengths(path, "word\n" * (limit + 1)))), 1, path)
        for path in ("docs/lab/a.md", "CHANGELOG.md", "results/README.md"):
            self.assertEqual(list(lengths(path, "word\n" * 10000)), [], path)


class SentencesTest(unittest.TestCase):
    def test_finds_sentences_that_begin_with_of(self):
        for text in ("Of these two are fast.", "- Of these two are fast.", "It runs. Of these two are fast.", "1. Of these.",
                     "| a | Of these |", "One line\nOf these two.", "**Of these** two.", "Note: Of these two."):
            self.assertEqual(len(list(sentences("docs/guide/a.md", text))), 1, text)

    def test_passes_all_else(self):
        for text in ("Two of these are fast.", "```\nOf these\n```", "See `Of these`.", "Off it goes. Often.", "Table Of Contents"):
            self.assertEqual(list(sentences("docs/guide/a.md", text)), [], text)
        self.assertEqual(list(sentences("docs/lab/a.md", "Of these two are fast.")), [])

    def test_names_the_line(self):
        self.assertEqual([number for number, _ in sentences("a.md", "One.\nTwo.\n\n- Of three.")], [4])


class LinksTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        (self.root / "docs/concepts").mkdir(parents=True)
        (self.root / "docs/concepts/masks.md").write_text("# Masks\n\n## The `full` pattern, and more\n\n## Again\n\n## Again\n")
        (self.root / "docs/a.png").write_text("")

    def found(self, text, path="docs/b.md"):
        return messages(links(path, text, self.root))

    def test_anchors_are_those_of_github(self):
        self.assertEqual(anchors("# One-two: `three`, [four](x.md)!\n```\n# no\n```\n## A_b\n"), {"one-two-three-four", "a_b"})
        self.assertEqual(anchors("# A\n# A\n# A\n"), {"a", "a-1", "a-2"})

    def test_passes_links_that_resolve(self):
        for text in ("[m](concepts/masks.md)", "![a](a.png)", "[x](https://example.org/y)", "[m](concepts/masks.md#again-1)",
                     "[m](concepts/masks.md#the-full-pattern-and-more)", "[f](concepts)", '<img src="a.png">', "`[x](gone.md)`",
                     "```\n[x](gone.md)\n```", "[![a](a.png)](concepts/masks.md)", "## Here\n[h](#here)", "[r]: concepts/masks.md"):
            (self.root / "docs/b.md").write_text(text)
            self.assertEqual(self.found(text), [], text)

    def test_finds_links_that_do_not(self):
        for text in ("[m](masks.md)", "![a](b.png)", "[m](concepts/masks.md#gone)", '<img src="b.png">', "[h](#gone)", "[r]: gone.md",
                     "[![a](b.png)](concepts/masks.md)", "a [b\nc](gone.md)"):
            (self.root / "docs/b.md").write_text(text)
            self.assertEqual(len(self.found(text)), 1, text)

    def test_finds_documents_that_sources_name(self):
        self.assertEqual(messages(mentions("// docs/concepts/masks.md tells", self.root)), [])
        self.assertEqual(list(mentions("// one\n// docs/masks.md tells", self.root)), [(2, "names docs/masks.md, which does not exist")])


class TermsTest(unittest.TestCase):
    def found(self, text, path="docs/concepts/a.md", glossary="- **tile map**: what kernels read.\n", code=""):
        return messages(terms({GLOSSARY: glossary, path: text}, {"src/a.h": code}))

    def test_a_marked_term_has_an_entry(self):
        self.assertEqual(self.found("The *tile map* is small."), [])
        self.assertEqual(self.found("*Tile maps* are\nsmall, and a *tile\nmap* is, too."), [])
        self.assertEqual(len(self.found("A tile map has a *gadget*.")), 1)
        self.assertEqual(self.found("A tile map has a *gadget*.", "docs/lab/a.md"), [])

    def test_only_emphasis_marks_a_term(self):
        for text in ("**bold** words", "`*p` and `*q`", "2 * 3 * 4", "```\n*x*\n```", "- one\n* two", r"a \*b\* c", "a*b*c"):
            self.assertEqual(list(marked_terms(text)), [], text)

    def test_an_entry_is_used(self):
        self.assertEqual(len(self.found("nothing")), 1)
        self.assertEqual(self.found("nothing", code="class tile_map;"), [])
        self.assertEqual(self.found("a *run* and a *stretch*", glossary="- **run, stretch**: tiles.\n"), [])
        self.assertEqual(self.found("*Rows of samples* and passes", glossary="- **row of samples**: some.\n- **pass**: one.\n"), [])


class MainTest(unittest.TestCase):
    def test_a_tree_without_documents_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(main(folder), 1)
            (Path(folder) / "README.md").write_text("# Fine\n")
            self.assertEqual(main(folder), 0)
            (Path(folder) / "README.md").write_text("x" * 161)
            self.assertEqual(main(folder), 1)


if __name__ == "__main__":
    unittest.main()
