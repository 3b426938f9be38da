// The dialogs of the page, of which at most one is open.

import { byId } from "./elements.js";

const openedDialog = () => /** @type {HTMLDialogElement | null} */ (document.querySelector("dialog[open]"));

export const isDialogOpen = () => openedDialog() !== null;

/** Open a dialog, unless one is open. @param {string} id */
export function openDialog(id) {
  if (!isDialogOpen()) byId(id).showModal();
}

/** Close the one that is open, if any. */
export const closeDialog = () => openedDialog()?.close();
