"""A headless Chromium, driven through chromedriver's WebDriver interface, with Python's standard library only."""
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


class Missing(Exception):
    """No browser is installed."""


class ScriptError(Exception):
    """An error of the page or the driver."""


class Browser:
    """with Browser(width=390, height=844) as browser: browser.open(path); browser.run('return 1')"""

    def __init__(self, width=1440, height=900, scale=1, dark=False):
        self.driver_path = shutil.which("chromedriver")
        self.chromium_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                                  None)
        if self.driver_path is None:
            raise Missing("chromedriver is not installed (Debian: chromium-driver)")
        if self.chromium_path is None:
            raise Missing("chromium is not installed (Debian: chromium)")
        self.width, self.height, self.scale, self.dark = width, height, scale, dark

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="longspan-browser-")
        # Chromium needs a writable HOME, which a build user may not have.
        self.driver = subprocess.Popen([self.driver_path, "--port=0"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True, env={**os.environ, "HOME": self.profile})
        try:
            self.base = f"http://127.0.0.1:{self._port()}"
            options = {"binary": self.chromium_path,
                       "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                "--hide-scrollbars", "--no-first-run", f"--user-data-dir={self.profile}/profile",
                                f"--window-size={self.width},{self.height}"]}
            answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome", "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
            self.session = "/session/" + answer["sessionId"]
            self.cdp("Emulation.setDeviceMetricsOverride", width=self.width, height=self.height,
                     deviceScaleFactor=self.scale, mobile=self.width < 700)
            self.cdp("Emulation.setEmulatedMedia", features=[
                {"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if hasattr(self, "session"):
            try:
                self._call("DELETE", self.session)
            except (OSError, ScriptError):
                pass
        self.driver.terminate()
        self.driver.wait(timeout=20)
        self.driver.stdout.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def _port(self):
        for line in self.driver.stdout:
            found = re.search(r"successfully on port (\d+)", line)
            if found:
                return int(found.group(1))
        raise Missing("chromedriver ended before it printed its port")

    def _call(self, method, path, body=None):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            # Requests to 127.0.0.1 must bypass any proxy set in the environment.
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise ScriptError(json.load(error)["value"]["message"]) from None

    def cdp(self, command, **parameters):
        return self._call("POST", self.session + "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, path, fragment=""):
        url = "file://" + urllib.request.pathname2url(os.path.abspath(path)) + fragment
        # A new fragment alone does not reload a page.
        self._call("POST", self.session + "/url", {"url": "about:blank"})
        self._call("POST", self.session + "/url", {"url": url})

    def run(self, script, *arguments):
        return self._call("POST", self.session + "/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector):
        """Clicks at the centre of the element, like a user."""
        found = self._call("POST", self.session + "/element", {"using": "css selector", "value": selector})
        self._call("POST", f"{self.session}/element/{next(iter(found.values()))}/click")

    def log(self, kind):
        return self._call("POST", self.session + "/se/log", {"type": kind})

    def console_errors(self):
        return [entry["message"] for entry in self.log("browser") if entry["level"] == "SEVERE"]

    def requests(self):
        """The URLs requested since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path, full_page=True, selector=None):
        # Charts are drawn in a later frame, once they have their size; on a busy machine this takes a while.
        drawn = ("return [...document.querySelectorAll('canvas')].every((c) => !c.offsetWidth || !c.width ||"
                 " c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((x) => x))")
        for _ in range(50):
            time.sleep(0.2)
            if self.run(drawn):
                break
        parameters = {"format": "png"}
        if selector:
            box = self.run("const r = document.querySelector(arguments[0]).getBoundingClientRect();"
                           "return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}", selector)
            parameters.update(captureBeyondViewport=True, clip={**box, "scale": 1})
        elif full_page:
            size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
            parameters.update(captureBeyondViewport=True, clip={**size, "width": self.width, "scale": 1})
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.cdp("Page.captureScreenshot", **parameters)["data"]))
