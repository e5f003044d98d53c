"""Many runs under watch: they are listed again and again, and what is new or has changed is read and judged."""

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

LISTING_SHARE = 0.1  # of the time, for listing what is there

MAX_HELD = 50  # runs whose history is kept in memory; others are read again when they change

UPLOAD_SECONDS = 60.0  # seconds that a line may take from a recorder to an address


class Place(Struct, frozen=True):
    """Where a run lies.

    Attributes:
        path: What is opened, or fetched first: a path or an address.
        fingerprint: Equal for equal states; empty: it cannot be told, and the run is looked at each time.
    """

    path: str
    fingerprint: str


class Sources(Struct, frozen=True):
    """What is watched.

    Attributes:
        shown: How the user named it.
        find: Lists the runs that are there, by their names.
        fetch: Returns where a run can be read on this machine.
        named: Names of single runs, which are judged from the start, and with which the watch ends where `is_open` is not set.
        is_open: Whether runs may come.
    """

    shown: str
    find: Callable[[], Mapping[str, Place]]
    fetch: Callable[[str], Path]
    named: Collection[str] = ()
    is_open: bool = True


class WatchOptions(Struct, frozen=True, kw_only=True):
    """How runs are watched, as in `WatchRounds`; `every` are the seconds between two lists."""

    criteria: AcceptanceCriteria = OPEN
    until: Severity | None = None
    stall_after: float | None = None
    notes: bool = False
    import_options: ImportOptions = field(default_factory=lambda: NO_IMPORT_OPTIONS)
    require_vital: bool = False
    every: float = 30.0


class ManyRuns:
    """Watches all runs of some places; it has the methods of `WatchRounds`.

    What is there at the start is taken to be known, unless it was named by itself: only what is new or changes from then on is
    read. A finding is told once for each run, however often that is read.

    Attributes:
        alerts: What was said of each run that something was said of, newest last.
    """

    def __init__(self, sources: Sources, options: WatchOptions) -> None:
        """Begin with nothing listed."""
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
        """Watch until a finding is grave enough, or all runs that were named have ended; see `WatchRounds.run_until_end`."""
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
        """How much could be judged of each run that was read, by its name."""
        return {name: watcher.vital for name, watcher in self._watchers.items()}

    def snapshots(self) -> list[Snapshot]:
        """Return each run that was read, as it was then."""
        return [self._snapshots[name] for name in sorted(self._snapshots)]

    def poll(self) -> Iterator[WatchEvent]:
        """List what is there, read what is new or has changed, and yield what there is to say."""
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
            elif name in self._held:  # whether it has fallen silent
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
        except (CkauditError, OSError) as error:  # it may be gone since it was listed, or out of reach for a while
            yield from self._trouble(name, error)
            return
        self._troubles.pop(name, None)
        if self._seen is not None:
            self._seen[name] = place.fingerprint

    def _watched(self, name: str, watcher: Announcer) -> Iterator[WatchEvent]:
        """Look at one run, keep how it stands, and give up the history of the one that was looked at longest ago."""
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
        """Forget a run that is no longer there."""
        for known in (self._seen or {}, self._watchers, self._held, self._snapshots, self._troubles):
            known.pop(name, None)
        self._again.discard(name)

    def _trouble(self, name: str, error: Exception) -> Iterator[WatchEvent]:
        """Yield what went wrong, once as long as it stays the same."""
        words = str(error)
        if self._troubles.get(name) != words:
            self._troubles[name] = words
            yield self._say(name, "error", f"{words}: it is looked at again")

    @staticmethod
    def _say(name: str, event: Event, message: str) -> WatchEvent:
        return WatchEvent(schema_version=VERSION, event=event, time=round(time(), 3), run=name, message=message)
