// A view without content, whose event "shown" fires when the image of the header is another one: `Page.image_signal`.

import { View } from "./view.js";

export class SignalView extends View {
  constructor(mounted) {
    super(mounted);
    this.mount("value");
  }

  async load() {
    const { source, size } = this.props.value; // the tab has a model of its own
    this.emitShown(`${source} ${size}`);
  }
}
