"""The tree of commands. Each verb has a file. Only the file of the called verb is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any

import typer
from typer.core import TyperGroup

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags.options import examples, option
from lakebackup_jobs.cli.output.help import PlainHelp, write_sections
from lakebackup_jobs.cli.output.usage import unknown_command
from lakebackup_jobs.cli.verb import Verb


class Commands(Mapping[str, Any]):
    """The commands of a group by name. Each is built when it is first looked up.

    `modules`: name -> a verb's module in this package, or a group. `hidden`: the module of a hidden verb.
    """

    def __init__(self, modules: Mapping[str, str | Group], hidden: str) -> None:
        self._hidden = hidden.rpartition(".")[2]
        self._modules = {**modules, **({self._hidden: hidden} if hidden else {})}
        self._built: dict[str, Any] = {}

    def find(self, name: str) -> Verb | Group:
        """The verb or group with a name. Raises KeyError."""
        module_or_group = self._modules[name]
        if isinstance(module_or_group, Group):
            return module_or_group
        module = vars(import_module(f"lakebackup_jobs.cli.{module_or_group}"))
        return next(verb for verb in module.values() if isinstance(verb, Verb) and verb.name == name)

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            command = self.find(name)
            self._built[name] = command if isinstance(command, Group) else command.command()
            self._built[name].hidden = name == self._hidden
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Group(PlainHelp, TyperGroup):
    """A command with commands, in panels of help. `unshown`: the module of one that help does not list."""

    def __init__(
        self, panels: Mapping[str, Mapping[str, str | Group]], unshown: str = "", **attributes: Any
    ) -> None:
        super().__init__(**{"rich_markup_mode": None, **attributes})
        self.panels = panels
        modules = {name: module for panel in panels.values() for name, module in panel.items()}
        self.commands_by_name = Commands(modules, unshown)
        self.commands = self.commands_by_name  # type: ignore[assignment]  # typer only reads it

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(UsageProblem.exit_code)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word in self.commands_by_name or word.startswith("-"):
            return super().resolve_command(ctx, args)

        names = [name for panel in self.panels.values() for name in panel]
        groups = {
            name: group.commands_by_name
            for name in names
            if isinstance(group := self.commands_by_name.find(name), Group)
        }
        raise unknown_command(word, ctx.command_path, names, groups)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        rows = [
            (title, (name, (self.commands_by_name.find(name).help or "").partition("\n\n")[0]))
            for title, panel in self.panels.items()
            for name in panel
        ]
        write_sections(formatter, rows)


def _verbs(package: str, *names: str) -> Mapping[str, str]:
    """Verbs of a package, each with its module: name -> module."""
    return {name: f"{package}.{name}" for name in names}


def _group(name: str, help_: str, verbs: Mapping[str, str]) -> Mapping[str, Group]:
    return {name: Group({"Commands": verbs}, name=name, help=help_)}


# In the order in which help lists them.
_PANELS: Mapping[str, Mapping[str, str | Group]] = {
    "Back up and restore": {
        **_group("backup", "Take a backup.", _verbs("backup", "topics", "queue", "snapshot")),
        **_group(
            "restore",
            "Restore data from a backup.",
            _verbs("restore", "topics", "groups", "queue", "snapshot", "point"),
        ),
        **_group(
            "log",
            "Capture a database's change feed continuously, and restore it to any moment.",
            _verbs(
                "log", "start", "status", "pause", "resume", "stop", "restore", "snapshot", "merge", "run",
                "compact", "truncate",
            ),
        ),
        **_verbs("keep", "verify", "drill"),
    },
    "Ask and inspect": {
        "status": "look.status",
        "list": "look.list_",
        **_verbs("look", "show", "files", "diff", "sql", "report"),
        **_group(
            "serve",
            "Serve the catalog and the log tasks to other programs.",
            dict.fromkeys(("thrift", "connect", "metrics", "http", "mcp"), "look.serve"),
        ),
    },
    "Maintain": {
        **_verbs("keep", "compact", "merge", "prune"),
        **_group(
            "policy",
            "Set how often to back up a source, and how long to keep the backups.",
            dict.fromkeys(("set", "show", "remove"), "keep.policy"),
        ),
        "hold": "keep.policy",
        **_verbs("keep", "due", "approve"),
        **_group(
            "archive",
            "Import, restore and write archives in cbbackup's format.",
            {"import": "archive.import_", **_verbs("archive", "restore", "export")},
        ),
        **_group(
            "catalog",
            "Maintain the catalog's tables.",
            {
                "manifest": "catalog.manifest",
                "import-manifest": "catalog.manifest",
                **_verbs("catalog", "rebuild", "init", "ddl", "export"),
                "import": "catalog.import_",
                "optimize": "catalog.optimize",
                "break-lease": "catalog.break_lease",
            },
        ),
        **_group(
            "key",
            "Create and test the keys that sign evidence and that read backups.",
            {
                "create": "key.create",
                "list": "key.list_",
                **_verbs("key", "test", "add", "remove", "rotate", "recover"),
            },
        ),
        **_group(
            "evidence",
            "Check the evidence of drills, checks and backups.",
            _verbs("evidence", "check", "prove"),
        ),
        **_verbs("keep", "config", "notify"),
    },
}  # fmt: skip


class _Root(Group):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(_PANELS, unshown="keep.manage", **attributes)


app = typer.Typer(
    cls=_Root,
    name="lakebackup",
    help="Back up Kafka topics, change feeds, snapshots of files, queues and cbbackup archives. Ask your "
    "backups with SQL, and restore to any covered time.",
    epilog=examples(
        "lakebackup backup topics orders --bootstrap-server localhost:9092 --repo ./backups\n"
        "lakebackup list --repo ./backups\n"
        "lakebackup restore topics orders --repo ./backups --to kafka://localhost:9092 --to-time -2h"
    ),
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"lakebackup {version('lakebackup')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = option("--version", "Print the version.", False, callback=_version, is_eager=True),
) -> None:
    pass
