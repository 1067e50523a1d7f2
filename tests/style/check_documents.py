"""Checks the documents: lengths of lines and texts, sentences that begin with 'Of', links, images and anchors, that
sources name only existing documents, and that the glossary defines our own terms. Prints each violation; exits with 1
if there is any."""

import re
import subprocess
import sys
from pathlib import Path

LINE_LIMIT = 160  # characters
# The maximum number of words of a document; the first matching pattern applies.
WORD_LIMITS = [
    (r"README\.md", 900),
    (r"docs/lab/.*", None),  # dated notebooks, kept whole
    (r"docs/reference/python\.md", None),  # generated from docstrings
    (r"docs/reference/rates\.md", None),  # generated from results
    (r"docs/kernels/.*", 2000),
    (r"docs/reference/cli\.md", 4200),  # made from --help
    (r"(docs/.*|CONTRIBUTING\.md|data/README\.md)", 2500),
]
PLAIN = r"(?!docs/lab/).*"  # documents whose sentences are checked
GLOSSARY = "docs/concepts/glossary.md"
# Documents in which *term* marks the first use of a term of our own, which the glossary must define.
WITH_TERMS = r"docs/(guide|concepts|reference|kernels)/.*"
# Sources whose comments and messages may name documents, and where a term counts as used.
SOURCES = re.compile(r"(src|include|examples|python|peers|suites|tools|scripts|cmake|tests)/.*|CMakeLists\.txt")
PUBLIC_CODE = re.compile(r"(src|include)/.*\.(h|cuh)")

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\s*\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HTML_LINK = re.compile(r"<(?:img|a)\b[^>]*?\b(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
BEGINS_WITH_OF = re.compile(r"(?:^\s*(?:[-*+>|]\s+|\d+\.\s+)*|[.!?:;|]\s+)\W{0,2}Of\s", re.MULTILINE)
EMPHASIS = re.compile(r"(?<![*\w\\])\*(?![*\s])([^*]+?)(?<![*\s\\])\*(?![*\w])")
ENTRY = re.compile(r"^- \*\*([^*]+)\*\*", re.MULTILINE)
MENTION = re.compile(r"\bdocs/[\w./-]+\.(?:md|png)\b")


def blanked(pattern, text):
    """`text` with all matches of `pattern` replaced by spaces, which keeps positions and line numbers."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def line_of(text, place):
    return text.count("\n", 0, place) + 1


def anchors(text):
    """The anchors that GitHub creates for the headings of a document."""
    found = {}
    for heading in HEADING.findall(blanked(FENCE, text)):
        heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        times = found.get(slug, 0)
        found[slug] = times + 1
        if times:
            found[f"{slug}-{times}"] = 1
    return set(found)


def lengths(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LINE_LIMIT:
            yield number, f"has {len(line)} characters; the limit is {LINE_LIMIT}"
    limit = next((limit for pattern, limit in WORD_LIMITS if re.fullmatch(pattern, path)), None)
    words = sum(re.search(r"\w", word) is not None for word in text.split())
    if limit is not None and words > limit:
        yield 1, f"has {words} words; the limit here is {limit}"


def sentences(path, text):
    if re.fullmatch(PLAIN, path):
        for match in BEGINS_WITH_OF.finditer(blanked(CODE_SPAN, blanked(FENCE, text))):
            yield line_of(text, match.end() - 1), "a sentence begins with 'Of': put the subject first"


def links(path, text, root):
    prose = blanked(CODE_SPAN, blanked(FENCE, text))
    for pattern in (LINK, REFERENCE, HTML_LINK):
        for match in pattern.finditer(prose):
            target = match.group(1)
            if re.match(r"[a-z][a-z+.-]*:", target):  # https:, mailto:
                continue
            name, _, fragment = target.partition("#")
            file = root / path if not name else (root / path).parent / name
            number = line_of(text, match.start())
            if not file.exists():
                yield number, f"links to {target}, which does not exist"
            elif fragment and file.suffix == ".md" and fragment not in anchors(file.read_text()):
                yield number, f"links to {target}, but that file has no heading with this anchor"


def mentions(text, root):
    """Missing documents that a source names in a comment or a message."""
    for match in MENTION.finditer(text):
        if not (root / match.group()).exists():
            yield line_of(text, match.start()), f"names {match.group()}, which does not exist"


def same_term(term):
    """The form in which terms are compared: lower case, singular words, single spaces."""
    return " ".join(re.sub(r"(?<=[^s])s$", "", word) for word in term.lower().split())


def marked_terms(text):
    """(line, term) of each *term*."""
    prose = blanked(CODE_SPAN, blanked(FENCE, text))
    for match in EMPHASIS.finditer(prose):
        if "\n\n" not in match.group() and "|" not in match.group():
            yield line_of(text, match.start()), match.group(1)


def terms(documents, code):
    """(path, line, message) for marked terms without an entry in the glossary, and entries that nothing uses.
    `documents` and `code` are texts by path."""
    glossary = documents.get(GLOSSARY, "")
    entries = {same_term(name): line_of(glossary, match.start())
               for match in ENTRY.finditer(glossary) for name in match.group(1).split(", ")}
    for path, text in documents.items():
        if path == GLOSSARY or not re.fullmatch(WITH_TERMS, path):
            continue
        for number, term in marked_terms(text):
            if same_term(term) not in entries:
                yield path, number, f"*{' '.join(term.split())}* is not defined in {GLOSSARY}"
    others = [text for path, text in documents.items() if path != GLOSSARY] + list(code.values())
    everything = re.sub(r"[\s_/]+", " ", "\n".join(others).lower())
    for entry, number in entries.items():
        if not re.search(r"\b" + r"s? ".join(map(re.escape, entry.split())), everything):
            yield GLOSSARY, number, f"defines '{entry}', which no document and no header uses"


def tracked(root):
    """Paths of the files under version control; of all files outside a git checkout."""
    try:
        command = ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z"]
        names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if path.is_file()]
        names = [name for name in names if not re.match(r"(build[^/]*|out|\.[^/]*)/", name)]
    return [name for name in names if name and (root / name).is_file()]


def violations(root):
    names = tracked(root)
    documents = {name: (root / name).read_text() for name in names if name.endswith(".md")}
    for path, text in documents.items():
        for found in (lengths(path, text), sentences(path, text), links(path, text, root)):
            for number, message in found:
                yield path, number, message
    code = {}
    for name in names:
        if SOURCES.fullmatch(name) and not name.endswith((".md", ".png", "check_documents_test.py")):
            text = (root / name).read_text(errors="replace")
            if PUBLIC_CODE.fullmatch(name):
                code[name] = text
            for number, message in mentions(text, root):
                yield name, number, message
    yield from terms(documents, code)


def main(root):
    root = Path(root)
    count = sum(1 for name in tracked(root) if name.endswith(".md"))
    found = list(violations(root))
    for path, number, message in found:
        print(f"{path}:{number}: {message}")
    print(f"{count} documents, {len(found)} violations")
    return 0 if count > 0 and not found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
