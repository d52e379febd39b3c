"""Split a Dockerfile into stages, and select those that the image to convert needs."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from jaxsif.builds.definition import Converted, Refusal
from jaxsif.builds.dockerfile import Instruction, convert_instructions, expand, read_arguments
from jaxsif.builds.dockerfile_rules import IMAGE, PACKAGES
from jaxsif.errors import JaxsifError

_FROM = re.compile(r"(?:--\S+ +)*(\S+)(?: +(?i:as) +(\S+))?")
_PROGRAM = re.compile(r"/?usr/local/bin(?:[/\s]|$)")  # where pip puts them, but not in our image
_MAY_BE_STAGE = re.compile(r"(?:[^/:$]|\$\w+|\$\{[^}]*\}+)*")
_TAG = re.compile(r"(?::[^/:@]*)?(?:@.*)?$")  # or digest, of an image


class Stage(NamedTuple):
    """A stage, with all that it inherits from earlier ones, or an image to copy from."""

    name: str  # its number if it has none, or an image
    base: str  # the image that its first FROM names
    instructions: tuple[Instruction, ...] = ()
    is_pulled: bool = False  # from a registry, and not replaced by the image with JAX

    def begin(self) -> Instruction:
        """Return its own FROM."""
        return next(one for one in reversed(self.instructions) if one.word == "FROM")

    def origins(self) -> Iterator[str]:
        """Yield the stages and images that COPY names."""
        return (one.origin for one in self.instructions if one.origin)


def split_stages(instructions: Sequence[Instruction]) -> list[Stage]:
    """Split instructions at each FROM. COPY --from then has the stage's own name."""
    starts = [at for at, one in enumerate(instructions) if one.word == "FROM"]
    heads = instructions[: starts[0]] if starts else instructions
    values, stages = read_arguments(heads), list[Stage]()
    names = {_name_stage(instructions[start], number) for number, start in enumerate(starts)}
    for begin, end in zip(starts, [*starts[1:], None]):
        own = [_resolve_origin(one, names, stages) for one in instructions[begin:end]]
        stages.append(_read_stage(own, stages, heads, values))
    return stages


def _read_stage(
    own: Sequence[Instruction],
    before: Sequence[Stage],
    heads: Sequence[Instruction],
    values: Mapping[str, str],
) -> Stage:
    found = _FROM.match(own[0].text)
    base = expand(found[1], values) if found else ""
    name = _name_stage(own[0], len(before))
    above = _find_stage(base, before) or Stage(base, base, tuple(heads))
    return Stage(name, above.base, (*above.instructions, *own))


def _name_stage(begin: Instruction, number: int) -> str:
    """Return the name of the stage that a FROM begins: its number if it has no other."""
    found = _FROM.match(begin.text)
    return ((found and found[2]) or str(number)).lower()


def _find_stage(name: str, stages: Sequence[Stage]) -> Stage | None:
    named = (one for number, one in enumerate(stages) if name.lower() in (one.name, str(number)))
    return next(named, None)


def _resolve_origin(
    instruction: Instruction, names: Container[str], before: Sequence[Stage]
) -> Instruction:
    """Replace COPY's source with the name of a stage `before`, or with an image's name and tag: no
    stage has a tag. Other numbers, and `names` of other stages, are no image's, and stay.
    """
    origin = instruction.origin
    stage = _find_stage(origin, before) if origin else None
    if not origin or (stage is None and (origin.isdecimal() or origin.lower() in names)):
        return instruction
    image = origin if _TAG.search(origin)[0] else f"{origin}:latest"  # type: ignore[index]
    return instruction._replace(origin=stage.name if stage else image)


def select_stages(stages: Sequence[Stage], target: str) -> list[Stage]:
    """Return, in the order of the builds, the stages that the last one needs, or the one that
    `target` names. Raise JaxsifError if there is no such stage.
    """
    last = _find_stage(target, stages) if target else stages[-1]
    if last is None:
        names = ", ".join(one.name for one in stages)
        raise JaxsifError(f"no stage {target}", "--target", f"name one of: {names}")
    needed, waiting = dict[str, Stage](), [last]
    while waiting:
        one = waiting.pop()
        if one.name not in needed:
            needed[one.name] = one
            waiting += (_find_stage(name, stages) or Stage(name, name) for name in one.origins())
    ours = (_TAG.sub("", last.base), "scratch")
    images = (one for one in needed.values() if not one.instructions)
    return [
        one._replace(is_pulled=_TAG.sub("", one.base) not in ours)
        for one in (*images, *(one for one in stages if one.name in needed))
    ]


def find_unused(stages: Sequence[Stage], used: Container[Instruction]) -> Iterator[str]:
    """Yield notes about the stages whose instructions are not `used`: no selected stage is based
    on them or copies from them.
    """
    for stage in stages:
        if stage.begin() not in used:
            yield f"line {stage.begin().line}: stage {stage.name} is left out: nothing uses it"


def check_stages(stages: Sequence[Stage], selected: Sequence[Stage]) -> Iterator[Refusal]:
    """Yield the lines with a stage or image name that cannot be used."""
    names = [one.name for one in stages]
    for number, stage in enumerate(stages):
        if stage.name in names[:number]:
            yield stage.begin().refuse("has the name of an earlier stage: give it another")
    for stage in selected:
        yield from _refuse_base(stage, stages[0].begin())
        for one in stage.instructions:
            if one.origin and not IMAGE.fullmatch(one.origin):
                yield one.refuse("names no stage or image")
            elif one.origin and not _is_known(one.origin, names[: names.index(stage.name)]):
                yield one.refuse("names no earlier stage: name one, or an image with its tag")
        yield from _refuse_programs(stage)


def _is_known(origin: str, earlier: Sequence[str]) -> bool:
    """Return whether COPY names an image, which has a tag by now, or an `earlier` stage."""
    return origin in earlier or _TAG.search(origin)[0] != ""  # type: ignore[index]


def _refuse_base(stage: Stage, first: Instruction) -> Iterator[Refusal]:
    """Yield the FROM that leaves open on what to build; the file's `first` can name no stage, and
    its image may be replaced.
    """
    begin = next((one for one in stage.instructions if one.word == "FROM"), first)
    may_be_stage = begin != first and _MAY_BE_STAGE.fullmatch(stage.base)
    needs_name = stage.instructions and (stage.is_pulled or may_be_stage)
    if needs_name and not IMAGE.fullmatch(stage.base):
        yield begin.refuse(
            "names no image or stage: write its name, or give its variable a value with ARG"
            " before FROM"
        )


def _refuse_programs(stage: Stage) -> Iterator[Refusal]:
    """Yield the lines that copy a program from where its packages are copied, too."""
    copies = [one for one in stage.instructions if one.origin]
    origins = {one.origin for one in copies if PACKAGES.search(one.text)}
    for one in copies:
        if one.origin in origins and _PROGRAM.match(one.split_options()[1].text):
            yield one.refuse(
                "copies a program from packages for another Python: install them in this stage"
            )


def convert_stage(stage: Stage) -> tuple[Converted, list[Refusal]]:
    """Convert a stage that passed `check_stages`; also return what is refused."""
    found, refused = convert_instructions(stage.instructions, stage.is_pulled)
    if not stage.instructions:
        note = f"the build pulls image {stage.base} from its registry, to copy from it"
        found = Converted(stage.base, notes=(note,))
    return found._replace(stage=stage.name, is_pulled=stage.is_pulled), refused
