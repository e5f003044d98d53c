"""Classes of Protocol Buffers messages, created with Google's library from a list of the wanted fields.

Numbers and types of fields never change once a format is published. Text is read as bytes: invalid characters are not an error,
but are replaced where the text is shown.
"""

from collections.abc import Mapping
from typing import Any

from ckaudit.errors import UsageError
from ckaudit.optional import install_command

Fields = Mapping[int, tuple[str, str]]
"""Name and type of each field by its number; a type with a star is repeated, one with a capital letter is a message."""


def message_classes(package: str, messages: Mapping[str, Fields], *, extra: str, what: str) -> dict[str, Any]:
    """Return a class for each message.

    Args:
        package: Name of the format.
        messages: Fields of each message by its name.
        extra: The extra of this package that installs the library.
        what: What the user wants to read, for the error where the library is missing.

    Raises:
        UsageError: Where the library is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise UsageError(f"reading {what} needs protobuf", hint=install_command(extra)) from None
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"ckaudit/{package}.proto", package=f"ckaudit.{package}", syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in fields.items():
            plain = kind.removeprefix("*")
            label = kinds.LABEL_REPEATED if kind != plain else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if plain[0].isupper():
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".ckaudit.{package}.{plain}"
            else:
                added.type = kinds.Type.Value(f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ckaudit.{package}.{name}")) for name in messages}
