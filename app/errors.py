"""Errors that a user reads: one sentence, and the HTTP status for the routes."""

import html

import gradio as gr


class LabError(gr.Error):
    """A request that cannot be answered; Gradio shows the message as a toast.

    Attributes:
        status: HTTP status of the routes: 422 invalid, 404 not found, 413 too large, 503 try again later.
    """

    status = 422

    def __init__(self, sentence: str) -> None:
        super().__init__(html.escape(sentence, quote=False), print_exception=False)  # toasts are HTML
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


class NotHere(LabError):
    """An unknown or forgotten name or token."""

    status = 404


class TooLarge(LabError):
    """More bytes than the limit."""

    status = 413


class Busy(LabError):
    """The server cannot do this now."""

    status = 503
