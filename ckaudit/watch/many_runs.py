"""Watching of many runs: they are listed repeatedly, and new or changed ones are read and judged."""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from time import monotonic, sleep, time

from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.audit.load_run import is_ours
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.report import SEVERITIES, Severity
from ckaudit.contract.schema.watch import VERSION, Event, Snapshot, WatchEvent
from ckaudit.errors import CkauditError, UnreadableError
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.remote.addresses import with_addresses
from ckaudit.watch.announcer import CLEAN, FOUND, MAX_ALERTS, NOTHING, Announcer, ClockReading, VitalLimits, watching
from ckaudit.watch.foreign_watcher import ForeignWatcher
from ckaudit.watch.watcher import Watcher

LISTING_SHARE = 0.1  # share of the time for listing runs

MAX_HELD = 50  # runs whose history is kept in memory; others are read again when they change

UPLOAD_SECONDS = 60.0  # seconds that a line may take from a recorder to an address


class Place(Struct, frozen=True):
    """Place of a run.

    Attributes:
        path: Path to open, or address to fetch first.
        fingerprint: Equal for equal states; empty: unknown, and the run is read each time.
    """

    path: str
    fingerprint: str


class Sources(Struct, frozen=True):
    """The watched runs.

    Attributes:
        shown: Name that the user gave.
        find: Lists the existing runs by name.
        fetch: Returns the local path of a run.
        named: Names of single runs, which are judged from the start. The watch ends with them unless `is_open` is set.
        is_open: Whether new runs may appear.
    """

    shown: str
    find: Callable[[], Mapping[str, Place]]
    fetch: Callable[[str], Path]
    named: Collection[str] = ()
    is_open: bool = True


class WatchOptions(Struct, frozen=True, kw_only=True):
    """Options of watching, as in `WatchRounds`; `every` is the number of seconds between two listings."""

    criteria: AcceptanceCriteria = OPEN
    until: Severity | None = None
    stall_after: float | None = None
    notes: bool = False
    import_options: ImportOptions = field(default_factory=lambda: NO_IMPORT_OPTIONS)
    require_vital: bool = False
    every: float = 30.0


class ManyRuns:
    """Watches all runs of some places, with the methods of `WatchRounds`.

    Runs that exist at the start count as known, unless they were named individually: only new or changed ones are read. A finding
    is announced once per run, however often the run is read.

    Attributes:
        alerts: Events of each run that has any, newest last.
    """

    def __init__(self, sources: Sources, options: WatchOptions) -> None:
        """Begin without runs."""
        self._sources, self._options = sources, options
        self._seen: dict[str, str] | None = None
        self._watchers: OrderedDict[str, Announcer] = OrderedDict()
        self._held: OrderedDict[str, Watcher] = OrderedDict()
        self._again: set[str] = set()
        self._snapshots: dict[str, Snapshot] = {}
        self._troubles: dict[str, str] = {}
        self._listing_seconds = 0.0
        self.alerts: dict[str, deque[WatchEvent]] = {}

    def run_until_end(self, say: Callable[[WatchEvent], None], *, after_poll: Callable[[], None] = lambda: None) -> int:
        """Watch until a finding is severe enough, or all named runs have ended; see `WatchRounds.run_until_end`."""
        until = self._options.until
        severities = SEVERITIES[: SEVERITIES.index(until) + 1] if until else ()
        while True:
            began, reached = monotonic(), False
            for event in self.poll():
                say(event)
                reached |= event.severity is not None and event.severity in severities
            after_poll()
            if reached:
                return FOUND
            if not self._sources.is_open and not self._watchers and self._troubles:
                raise UnreadableError(next(iter(self._troubles.values())))
            if not self._sources.is_open and self._seen and all(self._has_ended(name) for name in self._seen):
                limited = self._options.require_vital and any(vital.limits for vital in self.vital.values())
                return NOTHING if limited else CLEAN
            pause = max(self._options.every, self._listing_seconds / LISTING_SHARE)
            sleep(max(0.05, pause - (monotonic() - began)))

    @property
    def vital(self) -> dict[str, VitalLimits]:
        """How completely each run that was read could be judged, by name."""
        return {name: watcher.vital for name, watcher in self._watchers.items()}

    def snapshots(self) -> list[Snapshot]:
        """Return each run that was read, in its state at that time."""
        return [self._snapshots[name] for name in sorted(self._snapshots)]

    def poll(self) -> Iterator[WatchEvent]:
        """List the runs, read new or changed ones, and yield the new events."""
        for event in map(with_addresses, self._poll_all()):
            self.alerts.setdefault(event.run, deque(maxlen=MAX_ALERTS)).append(event)
            yield event

    def _poll_all(self) -> Iterator[WatchEvent]:
        began = monotonic()
        try:
            places = self._sources.find()
        except CkauditError as error:
            yield from self._trouble(self._sources.shown, error)
            return
        self._listing_seconds = monotonic() - began
        self._troubles.pop(self._sources.shown, None)
        if self._seen is None:
            self._seen = {name: place.fingerprint for name, place in places.items() if name not in self._sources.named}
            if self._sources.is_open:
                message = f"{len(places):,} runs are there: what is new or changes from now on is judged"
                yield replace(watching(self._sources.shown), message=message)
        for name in [name for name in self._seen if name not in places]:
            self._forget(name)
        for name, place in places.items():
            is_changed = self._seen.get(name) != place.fingerprint or not place.fingerprint
            if is_changed or name in self._again:
                yield from self._read(name, place)
            elif name in self._held:  # it may have fallen silent
                yield from self._watched(name, self._held[name])

    def _read(self, name: str, place: Place) -> Iterator[WatchEvent]:
        try:
            path = self._sources.fetch(place.path)
            watcher = self._watchers.get(name)
            if watcher is None or (isinstance(watcher, Watcher) and watcher.is_foreign()):
                is_new = watcher is None
                watcher = self._watchers[name] = self._new_announcer(name, path)
                if is_new:
                    yield watching(name)
            yield from self._watched(name, watcher)
        except (CkauditError, OSError) as error:  # it may have been deleted since the listing, or be unreachable for a while
            yield from self._trouble(name, error)
            return
        self._troubles.pop(name, None)
        if self._seen is not None:
            self._seen[name] = place.fingerprint

    def _watched(self, name: str, watcher: Announcer) -> Iterator[WatchEvent]:
        """Poll one run, keep its state, and drop the history of the run that was polled longest ago."""
        yield from watcher.poll(ClockReading(monotonic(), time()))
        self._snapshots[name] = watcher.snapshot(self.alerts.get(name, ()))
        self._again.discard(name)
        if not isinstance(watcher, Watcher):
            return
        if watcher.has_waiting:
            self._again.add(name)
        self._held[name] = watcher
        self._held.move_to_end(name)
        if watcher.ended and not watcher.has_waiting:
            self._held.pop(name).rest()
        while len(self._held) > MAX_HELD:
            oldest, held = self._held.popitem(last=False)
            self._again.discard(oldest)
            held.rest()

    def _new_announcer(self, name: str, path: Path) -> Announcer:
        options = self._options
        watcher: Announcer
        if is_ours(path):
            watcher = Watcher(
                path, criteria=options.criteria, stall_after=options.stall_after, notes=options.notes, at_every_look=True
            )
        else:
            watcher = ForeignWatcher(
                path,
                criteria=options.criteria,
                stall_after=options.stall_after,
                notes=options.notes,
                import_options=options.import_options,
            )
        watcher.name = name
        watcher.silence.delay = 2 * options.every + UPLOAD_SECONDS
        return watcher

    def _has_ended(self, name: str) -> bool:
        return name in self._watchers and self._watchers[name].ended

    def _forget(self, name: str) -> None:
        """Forget a run that no longer exists."""
        for known in (self._seen or {}, self._watchers, self._held, self._snapshots, self._troubles):
            known.pop(name, None)
        self._again.discard(name)

    def _trouble(self, name: str, error: Exception) -> Iterator[WatchEvent]:
        """Yield a complaint about an error, once while it stays the same."""
        words = str(error)
        if self._troubles.get(name) != words:
            self._troubles[name] = words
            yield self._say(name, "error", f"{words}: it is looked at again")

    @staticmethod
    def _say(name: str, event: Event, message: str) -> WatchEvent:
        return WatchEvent(schema_version=VERSION, event=event, time=round(time(), 3), run=name, message=message)
