// Lets the search run from file://: browsers refuse a worker there, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      // the script finds in the frame's window what a worker has; messages come later, as those of a worker do
      const inner = this.frame.contentWindow;
      inner.postMessage = data => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      inner.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => load(inner.document, next)), Promise.resolve());
      this.loaded = inner.importScripts(url);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };

  const load = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot load ${url}`));
      page.body.append(script);
    });
}
