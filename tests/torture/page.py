"""hostile text in results: it must not break out of its place in a report's page"""
import base64
import hashlib
import html.parser
import json
import os
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PIECES = ["</script>", "<script>", "</style>", "</title>", "<!--", "-->", "]]>", "<img src=x onerror=alert(1)>", "\"", "'", "`",
          "&lt;", "&", "\\", "\\u003c", "\u2028", "\u2029", "\u0000", "\u0001", "\u007f", "\u202e", "\ufeff", "\U0001f600", "é", "\n",
          "{{data}}", "/*{{script}}*/", "{{title}}", "javascript:alert(1)", "__proto__", "constructor", "x" * 3000]


class Page(html.parser.HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.styles, self.data, self.policy, self.inside = [], [], [], [], "", None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        self.elements.append((tag, attributes))
        if tag in ("script", "style"):
            block = {"style": self.styles}.get(tag, self.data if attributes.get("type") else self.scripts)
            block.append("")
            self.inside = block

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.inside = None

    def handle_data(self, text):
        if self.inside is not None:
            self.inside[-1] += text

    def fault(self):
        """What is wrong with the page, or None."""
        for texts, directive in ((self.scripts, "script-src"), (self.styles, "style-src")):
            sources = next((part.split()[1:] for part in self.policy.split(";") if part.split()[0] == directive), [])
            for text in texts:
                hashed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
                if f"'sha256-{hashed}'" not in sources:
                    return f"{directive} does not allow a block of the page itself: {text[:80]!r}"
            if not texts or len(sources) != len(texts):
                return f"{directive} allows {sources} for {len(texts)} blocks"
        if "unsafe" in self.policy or not self.policy.startswith("default-src 'none';"):
            return f"the policy is {self.policy}"
        for tag, attributes in self.elements:
            wrong = [name for name in attributes if name.startswith("on") or name == "style"]
            if wrong:
                return f"<{tag}> has {wrong}, which the policy forbids"
        if len(self.data) != 1 or "<" in self.data[0]:
            return f"{len(self.data)} data blocks, or one with a '<'"
        try:
            json.loads(self.data[0])
        except ValueError as error:
            return f"the data is no JSON: {error}"
        return None


def replaced(value, old, new):
    """The value with one text in place of another, in keys too."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [replaced(item, old, new) for item in value]
    if isinstance(value, dict):
        return {replaced(key, old, new): replaced(item, old, new) for key, item in value.items()}
    return value


def hostile_lines(folder):
    """The lines of a results file, and the text that stands wherever a file may hold any text."""
    sys.path.insert(0, os.path.join(TESTS, "browser"))
    from synthetic_results import HOSTILE
    path = os.path.join(folder, "hostile.jsonl")
    subprocess.run([sys.executable, os.path.join(TESTS, "browser", "synthetic_results.py"), path, "--kind", "hostile"],
                   check=True)
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file], HOSTILE


def attempts(t):
    lines, placeholder = hostile_lines(t.folder)
    results, page = os.path.join(t.folder, "results.jsonl"), os.path.join(t.folder, "page.html")
    elements = None
    while True:
        text = "name" if elements is None else "".join(t.random.choices(PIECES, k=t.random.randint(1, 6)))
        with open(results, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.writelines(json.dumps(replaced(line, placeholder, text), ensure_ascii=t.random.random() < 0.5) + "\n"
                            for line in lines)
        result = t.run("report", results, "-o", page)
        fault = t.fault(result)
        if fault is None and result.returncode == 0:
            with open(page, encoding="utf-8", newline="") as file:
                made = Page(file.read())
            fault = made.fault()
            # Only texts differ between pages: the elements are those of the first one.
            found = [(tag, {k: v for k, v in attributes.items() if k != "content"}) for tag, attributes in made.elements]
            elements = elements or found
            if fault is None and found != elements:
                fault = f"the page has {len(found)} elements instead of {len(elements)}"
        yield f"report of results with {text[:60]!r}", fault
