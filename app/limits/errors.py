"""Errors that a user reads, and the check of values that a client sends."""

import html
import json
from typing import Self

import gradio as gr
from pydantic import BaseModel, ConfigDict, ValidationError

MOST_SHOWN = 60  # characters of an invalid value


class LabError(gr.Error):
    """A request that cannot be answered, in one sentence; Gradio shows it as a toast.

    Every function of this package that takes a value from a client raises it or a subclass.

    Attributes:
        status: HTTP status of the routes: 422 invalid, 404 not found, 503 try again later.
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


class Busy(LabError):
    """The server cannot do this now."""

    status = 503


class ClientValue(BaseModel):
    """JSON of a client with fields of fixed types and ranges; other fields are ignored.

    Errors have the `description` of a field, a noun phrase that says what is expected.
    """

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    def of(cls, value: object) -> Self:
        """Check a client's value."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            fault = error.errors()[0]
            field, found = ".".join(map(str, fault["loc"])) or "request", json.dumps(fault["input"])
            known = cls.model_fields.get(str(fault["loc"][0]) if fault["loc"] else "")
            reason = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
            if known and known.description:
                reason = f"found {found[:MOST_SHOWN]}, expected {known.description}"
            raise LabError(f"Invalid {field}: {reason}.") from error
