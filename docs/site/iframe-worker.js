/* Search on pages that are opened from a folder: browsers start no worker from a file there.
 *
 * What the theme starts as a Worker runs in a hidden frame instead. Its plugin "offline" takes this file for the one
 * that it would load from the network, by its name.
 */
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    #frame = document.createElement("iframe");
    #early = [];

    constructor(url) {
      super();
      const script = new URL(url, document.baseURI).href.replaceAll('"', "%22");
      this.#frame.hidden = true;
      // The worker answers with postMessage(data), which in a frame would send to the frame itself.
      this.#frame.srcdoc = `<!doctype html><script>
        postMessage = (data) => dispatchEvent(new CustomEvent("answer", { detail: data }));
      <\/script><script src="${script}"><\/script>`;
      this.#frame.addEventListener("load", () => {
        this.#frame.contentWindow.addEventListener("answer", ({ detail }) =>
          this.dispatchEvent(new MessageEvent("message", { data: detail })));
        const early = this.#early;
        this.#early = null;
        early.forEach((data) => this.postMessage(data));
      });
      document.body.append(this.#frame);
    }

    postMessage(data) {
      if (this.#early) this.#early.push(data);
      else this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }
  }
  // The theme's worker looks for this name.
  window.IFrameWorker = window.Worker = IFrameWorker;
}
