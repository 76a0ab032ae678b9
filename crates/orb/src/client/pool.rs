//! Connections to one server, checked out exclusively.
//!
//! A call takes a connection for itself with one compare-and-swap, writes its request, reads its own reply, and gives the
//! connection back. Two callers never share one, so nobody waits for another's reply. When all of the bound are out, a caller
//! waits until its deadline.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane_net::{Endpoint, Stream};
use corelane_sys::clock::Monotonic;
use corelane_sys::gate::Gate;
use corelane_sys::lock::{CellGuard, Exclusive, Holder, Mutex, PiMutex, Scope};

use super::bands::Band;
use super::connection::{ClientConnection, Holding};
use super::multiplexed::Multiplexed;
use crate::orb::Core;
use crate::policy::Due;
use crate::rt::policies::Sockets;
use crate::rt::station::Raised;

/// How long a caller waits at most for its connection while it is looked after, which takes some microseconds: for who does has no urgency,
/// and may not get to run.
const TENDING: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::from_millis(20) };

pub(crate) type Slot = Exclusive<Option<Box<ClientConnection>>>;

/// The connections of one band to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Where the server is: addresses of one profile in the order to try.
    endpoints: Arc<[Endpoint]>,
    sockets: Sockets,
    slots: Vec<Arc<Slot>>,
    /// Slots from here on have never held a connection.
    used: AtomicUsize,
    /// What was seen of each slot when it was last looked at; only who tidies looks.
    looks: Mutex<Vec<Look>>,
    /// Where those wait who found every slot taken, or their own looked after.
    gate: Arc<Gate>,
    band: Band,
    /// The connection of calls that have none for themselves, and where those wait who want it while it is made.
    shared: PiMutex<Shared>,
    made: Gate,
}

/// What somebody who looks at a slot now and then has seen.
#[derive(Debug)]
struct Look {
    /// How often the slot had been used.
    uses: u32,
    /// Since when it has not been, as far as is known.
    since: Monotonic,
}

/// A connection that calls share.
#[derive(Debug)]
enum Shared {
    None,
    /// A thread makes it.
    Dialling,
    Open(Arc<Multiplexed>),
}

/// A connection that the calling thread has for itself; it goes back when this is dropped.
pub(crate) struct Checkout<'p> {
    /// Where it is; lent by a pool that outlives this, so that a call counts no reference, or on its own. Empty: not made yet, or
    /// discarded.
    slot: CellGuard<'p, Option<Box<ClientConnection>>>,
}

/// Whether the connection of a slot takes a request at once.
#[inline]
fn takes(since: u64, awaits: bool) -> impl Fn(&mut Option<Box<ClientConnection>>) -> bool {
    move |slot| slot.as_mut().is_some_and(|connection| connection.takes(since, awaits))
}

thread_local! {
    /// The slot that this thread had last, in whatever pool: where it looks first.
    static HINT: Cell<usize> = const { Cell::new(0) };
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NoConnection {
    /// All are in use and none came back in time.
    AllBusy,
    /// Connecting failed at every address; the last failure.
    Failed(io::Error),
    /// The time was over while connecting.
    TimedOut,
}

impl Pool {
    pub(crate) fn new(endpoints: Arc<[Endpoint]>, sockets: Sockets, band: Band, bound: usize) -> Self {
        let gate = Arc::new(Gate::new("connection pool"));
        let slot =
            |_| Arc::new(Exclusive::new("client connection", Scope::Connection, None).with_gate(Arc::clone(&gate)));
        let slots = (0..bound.max(1)).map(slot).collect();
        let looks = Mutex::new("looks at a pool's slots", Scope::Orb, Vec::new());
        let shared = PiMutex::new("shared connection of a pool", Scope::Lane, Shared::None);
        let made = Gate::new("shared connection");
        Pool { endpoints, sockets, slots, used: AtomicUsize::new(0), looks, gate, band, shared, made }
    }

    /// Makes the calling thread begin its search as a new one would.
    #[cfg(test)]
    pub(crate) fn forget_hint() {
        HINT.set(0);
    }

    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    pub(crate) fn band(&self) -> Band {
        self.band
    }

    /// A live connection that nobody uses and that owes no reply to a call given up, if there is one with a number from `since` on; for a
    /// request that `awaits` a reply or does not, and is `due`: the one that the caller had last is waited for while it is looked after.
    pub(crate) fn idle(&self, since: u64, awaits: bool, due: Due) -> Option<Checkout<'static>> {
        self.find(Slot::try_lock_owned, takes(since, awaits), Some(due))
    }

    /// The same of any number, for who keeps the pool meanwhile.
    #[inline]
    pub(crate) fn lend_idle(&self, awaits: bool, due: Due) -> Option<Checkout<'_>> {
        self.find(Slot::try_lock_cell, takes(0, awaits), Some(due))
    }

    /// A slot that nobody uses and that is `wanted`; what has hung up is closed on the way. With `due`, what the caller had last is waited for
    /// while it is looked after.
    #[inline]
    fn find<'p, 'k>(
        &'p self,
        take: impl Fn(&'p Arc<Slot>) -> Option<CellGuard<'k, Option<Box<ClientConnection>>>>,
        wanted: impl Fn(&mut Option<Box<ClientConnection>>) -> bool,
        due: Option<Due>,
    ) -> Option<Checkout<'k>> {
        let used = self.used.load(Ordering::Acquire);
        let hint = HINT.get();
        for turn in 0..used {
            let mut index = hint + turn;
            if index >= used {
                index %= used;
            }
            let slot = &self.slots[index];
            let tended = || due.filter(|_| turn == 0).and_then(|due| self.take_tended(slot, due, &take));
            let Some(mut slot) = take(slot).or_else(tended) else { continue };
            if wanted(&mut slot) {
                HINT.set(index);
                return Some(Checkout { slot });
            }
            if slot.as_ref().is_some_and(|connection| !connection.is_usable()) {
                *slot = None;
            }
            slot.put_back();
        }
        None
    }

    /// A slot when it has been looked after: elsewhere the caller would overtake the oneways that it has sent there. Callers with a real-time
    /// priority go elsewhere: nothing of theirs is held, and nobody who has less is waited for. So does who finds another caller there, be it one
    /// that only looks.
    #[cold]
    fn take_tended<'p, S>(
        &self,
        slot: &'p Arc<Slot>,
        due: Due,
        take: impl Fn(&'p Arc<Slot>) -> Option<S>,
    ) -> Option<S> {
        if self.band.is_real_time() || slot.holder() == Holder::User {
            return None;
        }
        let now = Monotonic::now();
        let until = match due {
            Due::At(moment) => moment.min(now + TENDING),
            // The whole time-out is still to come, and may be an eighth late.
            Due::Within(duration, _) => now + TENDING.min(duration / 8),
            Due::Never => now + TENDING,
        };
        let look = || loop {
            if let Some(taken) = take(slot) {
                return Some(Some(taken));
            }
            match slot.holder() {
                Holder::Tender => return None,
                Holder::User => return Some(None),
                // It came back in between.
                Holder::Nobody => {}
            }
        };
        self.gate.wait(Some(until), look).flatten()
    }

    /// A connection with a number from `since` on: an idle one, a new one while the bound allows, else the first that comes back before
    /// `whole`. A new one is made until what `until` says then.
    #[cold]
    pub(crate) fn connect(
        self: &Arc<Self>,
        core: &Core,
        whole: Option<Monotonic>,
        until: impl FnOnce() -> Option<Monotonic>,
        since: u64,
    ) -> Result<Checkout<'static>, NoConnection> {
        let checkout = match self.free(since).or_else(|| self.gate.wait(whole, || self.free(since))) {
            Some(checkout) => checkout,
            None => return Err(NoConnection::AllBusy),
        };
        self.ready(checkout, core, until(), since)
    }

    /// Makes the connection of a slot that has none with a number from `since` on.
    #[cold]
    pub(crate) fn ready<'p>(
        self: &Arc<Self>,
        mut checkout: Checkout<'p>,
        core: &Core,
        until: Option<Monotonic>,
        since: u64,
    ) -> Result<Checkout<'p>, NoConnection> {
        let connection = &mut *checkout.slot;
        if connection.as_ref().is_some_and(|connection| connection.number < since) {
            *connection = None;
        }
        if connection.is_none() {
            *connection = Some(Box::new(self.open(core, until)?));
        }
        Ok(checkout)
    }

    /// An idle connection, else an empty slot, else a connection on which a late reply is still to come: behind that, a server
    /// that serves a connection's requests one by one would let this call wait too.
    pub(crate) fn free(&self, since: u64) -> Option<Checkout<'static>> {
        self.find(Slot::try_lock_owned, takes(since, true), None)
            .or_else(|| self.find(Slot::try_lock_owned, |slot| slot.is_none(), None))
            .or_else(|| {
                let used = self.used.load(Ordering::Acquire);
                // Others may be taking the first of them at this moment.
                let free = |index: usize| Some((index, Slot::try_lock_owned(self.slots.get(index)?)?));
                let (index, slot) = (used..self.slots.len()).find_map(free)?;
                self.used.fetch_max(index + 1, Ordering::AcqRel);
                HINT.set(index);
                Some(Checkout { slot })
            })
            .or_else(|| self.find(Slot::try_lock_owned, |slot| slot.is_some(), None))
    }

    /// Whether there is a connection that calls share.
    #[cold]
    pub(crate) fn has_shared(&self) -> bool {
        matches!(&*self.shared.lock(), Shared::Open(connection) if connection.is_open())
    }

    /// The connection that calls share, made anew if there is none that takes requests; nobody waits longer for it than until
    /// its own `until`.
    #[cold]
    pub(crate) fn shared(&self, core: &Core, until: Option<Monotonic>) -> Result<Arc<Multiplexed>, NoConnection> {
        let look = || {
            let mut shared = self.shared.lock();
            match &*shared {
                Shared::Open(connection) if connection.is_open() => Some(Some(Arc::clone(connection))),
                Shared::Dialling => None,
                Shared::None | Shared::Open(_) => {
                    *shared = Shared::Dialling;
                    Some(None)
                }
            }
        };
        match look().or_else(|| self.made.wait(until, look)) {
            Some(Some(connection)) => return Ok(connection),
            Some(None) => {}
            None => return Err(NoConnection::TimedOut),
        }
        let made = self.dial(core, until).and_then(|(stream, endpoint)| {
            let connection = Arc::new(Multiplexed::new(stream, endpoint, core.spares(), self.band.range().is_none()));
            core.replies().read(core, self.band, &connection).map_err(NoConnection::Failed)?;
            Ok(connection)
        });
        *self.shared.lock() = made.as_ref().map_or(Shared::None, |connection| Shared::Open(Arc::clone(connection)));
        self.made.open();
        made
    }

    fn open(self: &Arc<Self>, core: &Core, until: Option<Monotonic>) -> Result<ClientConnection, NoConnection> {
        let number = core.next_connection();
        let (stream, endpoint) = self.dial(core, until)?;
        let mut connection = ClientConnection::new(stream, core, endpoint, Arc::downgrade(self), number)
            .map_err(NoConnection::Failed)?;
        if !self.band.is_real_time() {
            connection.may_hold(core.config().oneway_batch.octets);
        }
        Ok(connection)
    }

    /// Connects to the first address that answers.
    fn dial(&self, core: &Core, until: Option<Monotonic>) -> Result<(Box<dyn Stream>, &Endpoint), NoConnection> {
        let mut failure = io::Error::new(io::ErrorKind::AddrNotAvailable, "the profile has no address");
        for (left, endpoint) in (1..=self.endpoints.len()).rev().zip(&*self.endpoints) {
            // One address that does not answer leaves the others their part of the time.
            let due = until.map(|until| {
                let now = crate::clock::now();
                now + until.since(now) / u32::try_from(left).unwrap_or(u32::MAX)
            });
            match core.transports().connect_with(endpoint, &self.sockets.properties, due) {
                Ok(stream) => {
                    self.mark(core, &*stream);
                    return Ok((stream, endpoint));
                }
                Err(error) => failure = error,
            }
            if until.is_some_and(|until| crate::clock::now() >= until) {
                return Err(NoConnection::TimedOut);
            }
        }
        Err(NoConnection::Failed(failure))
    }

    /// Gives the packets of a connection the code point of the band's priority.
    fn mark(&self, core: &Core, stream: &dyn Stream) {
        let rt = &core.config().rt;
        if self.sockets.network_priority
            && let Some(priority) = self.band.priority(&*rt.mapping)
        {
            core.mark(stream, priority);
        }
    }

    /// Closes the connections that have hung up and that nobody uses; those in use are closed when they come back.
    #[cold]
    pub(crate) fn sweep(&self, core: &Core) {
        if let Some(_raised) = self.raise(core) {
            self.close(|connection| !connection.is_usable());
        }
    }

    /// The calling thread has the priority of the pool's callers, for what they may wait for: a slot or a sending end that it has is one
    /// that they do not find, and nobody would lend it theirs. `None` if the system refuses: then it leaves that to them.
    fn raise(&self, core: &Core) -> Option<Raised> {
        let native = self.band.native(&core.config().rt).ok()?;
        Raised::to(native).ok()
    }

    /// Closes the connections that nobody has used for `idle`, and gives back memory of those that are not used. Those that callers with
    /// a real-time priority have for themselves stay, for the next call; what they share does not.
    #[cold]
    pub(crate) fn tidy(&self, core: &Core, now: Monotonic, idle: Duration) {
        if !self.band.is_real_time() {
            self.tidy_slots(now, idle);
        }
        let shared = self.shared.lock();
        let Shared::Open(connection) = &*shared else { return };
        let connection = Arc::clone(connection);
        drop(shared);
        let Some(_raised) = self.raise(core) else { return };
        if connection.tidy(now, idle) {
            let mut shared = self.shared.lock();
            if matches!(&*shared, Shared::Open(other) if Arc::ptr_eq(other, &connection)) {
                *shared = Shared::None;
            }
        }
    }

    /// Slots that have been used since the last look are left alone, for their callers.
    fn tidy_slots(&self, now: Monotonic, idle: Duration) {
        let mut looks = self.looks.lock();
        let known = looks.len();
        let look = |slot: &Arc<Slot>| Look { uses: slot.uses(), since: now };
        looks.extend(self.slots[known..self.used.load(Ordering::Acquire)].iter().map(look));
        for (slot, last) in self.slots.iter().zip(&mut *looks) {
            if slot.uses() != last.uses {
                *last = look(slot);
            }
            let unused = now.since(last.since);
            if unused == Duration::ZERO {
                continue;
            }
            let Some(mut taken) = slot.try_tend() else { continue };
            // Nobody has come in between.
            if slot.uses() == last.uses {
                if let Some(connection) = &mut *taken {
                    connection.shrink();
                }
                taken.take_if(|connection| !connection.is_usable() || unused >= idle);
            }
        }
    }

    fn close(&self, unwanted: impl Fn(&mut ClientConnection) -> bool) {
        for slot in &self.slots {
            if let Some(mut slot) = slot.try_tend()
                && slot.as_deref_mut().is_some_and(&unwanted)
            {
                *slot = None;
            }
        }
    }

    /// Closes every connection that is not in use.
    pub(crate) fn close_idle(&self) {
        self.close(|_| true);
        let mut shared = self.shared.lock();
        if let Shared::Open(_) = *shared {
            *shared = Shared::None;
        }
    }
}

impl Checkout<'_> {
    /// Keeps a whole oneway message for others to go out with. False if the connection holds nothing, or too much: it is to be sent.
    #[inline(never)]
    pub(crate) fn hold(&mut self, message: &[u8], core: &Core) -> bool {
        match self.held.hold(message) {
            Holding::Refused => return false,
            Holding::Listed => {}
            Holding::First => core.list_held(Arc::downgrade(self.slot.cell())),
        }
        true
    }

    /// Drops the connection instead of giving it back: its state is unknown. Using the checkout afterwards panics.
    #[cold]
    pub(crate) fn discard(&mut self) {
        *self.slot = None;
    }
}

impl std::ops::Deref for Checkout<'_> {
    type Target = ClientConnection;

    #[inline]
    fn deref(&self) -> &ClientConnection {
        self.slot.as_deref().expect("a checkout holds a connection until it is discarded")
    }
}

impl std::ops::DerefMut for Checkout<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ClientConnection {
        self.slot.as_deref_mut().expect("a checkout holds a connection until it is discarded")
    }
}

impl Drop for Checkout<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.slot.as_ref().is_some_and(|connection| !connection.is_usable()) {
            // Before the slot is anybody else's.
            *self.slot = None;
        }
    }
}

impl std::fmt::Debug for Checkout<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Checkout").field(&*self.slot).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use corelane_sched::{Priority, PriorityBand};
    use corelane_sys::counters;
    use corelane_wire::Encoder;

    use super::*;
    use crate::Orb;
    use crate::client::connection::Broken;
    use crate::client::watch::tests::wait_for_end;
    use crate::invocation::machine::Written;
    use crate::receive::KEPT;
    use crate::rt::{RtConfig, SchedulingClass};

    /// Connections of a band to a server that says nothing.
    struct Played {
        orb: Orb,
        pool: Arc<Pool>,
        listener: std::net::TcpListener,
    }

    /// A band of callers with priorities.
    fn every() -> Band {
        Band::of_range(PriorityBand { low: Priority::MIN, high: Priority::MAX })
    }

    fn play(band: Band, bound: usize) -> Played {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let pool = Arc::new(Pool::new([endpoint].into(), Sockets::default(), band, bound));
        let rt = RtConfig { scheduling: SchedulingClass::Fair, ..RtConfig::default() };
        Played { orb: Orb::builder().real_time(rt).build().unwrap(), pool, listener }
    }

    impl Played {
        fn connect(&self) -> Checkout<'static> {
            self.pool.connect(self.orb.core(), None, || None, 0).unwrap()
        }
    }

    const fn second(second: u64) -> Monotonic {
        Monotonic::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn connections_that_nobody_uses_give_back_memory_and_end() {
        let played = play(Band::of_thread(), 2);
        let mut checkout = played.connect();
        checkout.request_memory.reserve(2 * KEPT);
        drop(checkout);
        let tidy = |at| played.pool.tidy(played.orb.core(), second(at), Duration::from_secs(9));
        let memory = || played.pool.idle(0, true, Due::Never).map(|connection| connection.request_memory.capacity());
        // It was used since the last look, which there was none.
        tidy(1);
        assert!(memory().is_some_and(|memory| memory > KEPT));
        // To ask for it was to use it.
        tidy(2);
        tidy(3);
        assert_eq!(memory(), Some(0));
        (4..13).for_each(tidy);
        assert_eq!(memory(), Some(0));
        (13..22).for_each(tidy);
        assert_eq!(memory(), Some(0));
        (22..32).for_each(tidy);
        assert_eq!(memory(), None);
    }

    /// On another connection it overtook the oneways that it had sent before.
    #[test]
    fn a_caller_waits_for_its_connection_while_that_is_looked_after() {
        let played = play(Band::of_thread(), 2);
        let (first, second) = (played.connect(), played.connect());
        let number = first.number;
        drop((first, second));
        let tended = played.pool.slots[0].try_tend().unwrap();
        let task = std::sync::OnceLock::new();
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                task.set(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                played.pool.idle(0, true, Due::Never).map(|connection| connection.number)
            });
            let sleeps =
                |task| std::fs::read_to_string(format!("/proc/{task}/stat")).is_ok_and(|stat| stat.contains(") S "));
            while !caller.is_finished() && !task.get().is_some_and(|task| sleeps(task.display())) {
                std::thread::yield_now();
            }
            drop(tended);
            assert_eq!(caller.join().unwrap(), Some(number));
        });
        Pool::forget_hint();
        let taken = played.pool.idle(0, true, Due::Never).unwrap();
        assert_eq!(taken.number, number);
        Pool::forget_hint();
        let before = counters::snapshot();
        assert_ne!(played.pool.idle(0, true, Due::Never).unwrap().number, number);
        assert_eq!((counters::snapshot() - before).futex, 0, "it does not wait for other callers");
    }

    #[test]
    fn who_has_no_time_or_is_real_time_takes_another_connection() {
        for (band, due, waits) in [(Band::of_thread(), Due::At(second(0)), 1), (every(), Due::Never, 0)] {
            let played = play(band, 2);
            let (mut first, mut other) = (played.connect(), played.connect());
            first.bound();
            other.bound();
            let number = other.number;
            drop((first, other));
            Pool::forget_hint();
            let _tended = played.pool.slots[0].try_tend().unwrap();
            let before = counters::snapshot();
            assert_eq!(played.pool.idle(0, true, due).unwrap().number, number);
            assert_eq!((counters::snapshot() - before).futex, waits, "{band:?}");
        }
    }

    #[test]
    fn a_slot_in_use_is_not_looked_after() {
        let played = play(Band::of_thread(), 2);
        let locks = |at| {
            drop(played.pool.idle(0, true, Due::Never));
            let before = counters::snapshot();
            played.pool.tidy(played.orb.core(), second(at), Duration::from_secs(9));
            played.pool.tidy(played.orb.core(), second(at), Duration::from_secs(9));
            (counters::snapshot() - before).locks
        };
        drop(played.connect());
        let in_use = locks(1);
        assert_eq!((locks(2), locks(3)), (in_use, in_use));
        let before = counters::snapshot();
        played.pool.tidy(played.orb.core(), second(4), Duration::from_secs(9));
        assert_eq!((counters::snapshot() - before).locks, in_use / 2 + 1);
    }

    #[test]
    fn who_looks_after_a_connection_does_not_use_it() {
        let played = play(Band::of_thread(), 2);
        drop(played.connect());
        for time in 1..=10 {
            assert!(played.pool.slots[0].try_tend().unwrap().is_some());
            played.pool.tidy(played.orb.core(), second(time), Duration::from_secs(9));
            played.pool.sweep(played.orb.core());
            assert!(played.pool.find(Slot::try_lock_owned, |_| false, None).is_none());
        }
        assert!(played.pool.slots[0].try_tend().unwrap().is_none());
    }

    /// Makes so many calls at once.
    fn call(checkout: &mut Checkout<'_>) {
        crate::clock::set(Some(Monotonic::now()));
        for _ in 0..1000 {
            checkout.request_id();
        }
        crate::clock::set(None);
    }

    #[test]
    fn connections_of_real_time_callers_are_always_watched() {
        for (band, is_left) in [(Band::of_thread(), true), (every(), false)] {
            let played = play(band, 1);
            played.orb.core().watch_no_more();
            let mut checkout = played.connect();
            call(&mut checkout);
            assert_eq!(checkout.is_left(), is_left, "{band:?}");
        }
    }

    #[cfg(feature = "shared-memory")]
    #[test]
    fn connections_over_shared_memory_are_always_watched() {
        let path = std::env::temp_dir().join(format!("corelane-pool-{}", std::process::id()));
        let server = Orb::builder().listen(format!("shm:{}", path.display())).build().unwrap();
        let endpoint = Endpoint::shared_memory(path);
        let pool = Arc::new(Pool::new([endpoint].into(), Sockets::default(), Band::of_thread(), 1));
        let orb = Orb::builder().build().unwrap();
        let mut checkout = pool.connect(orb.core(), None, || None, 0).unwrap();
        call(&mut checkout);
        assert!(!checkout.is_left());
        drop((checkout, server));
    }

    #[test]
    fn a_oneway_takes_another_connection_of_those_that_are_there() {
        let played = play(Band::of_thread(), 2);
        played.orb.core().watch_no_more();
        let (mut first, second) = (played.connect(), played.connect());
        let number = second.number;
        call(&mut first);
        assert!(first.is_left());
        let peer = played.listener.accept().unwrap().0;
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        wait_for_end(&peer);
        drop((second, first));
        Pool::forget_hint();
        let taken = played.pool.idle(0, false, Due::Never).unwrap();
        assert_eq!(taken.number, number);
        assert!(played.pool.slots[0].try_lock().unwrap().is_none(), "the first is closed");
    }

    #[test]
    fn shared_connections_end_when_nobody_uses_them() {
        for band in [Band::of_thread(), every()] {
            let played = play(band, 1);
            let shared = || played.pool.shared(played.orb.core(), None).unwrap();
            let first = shared();
            let (id, _pending) = first.register().unwrap();
            let tidy = |at| played.pool.tidy(played.orb.core(), second(at), Duration::from_secs(3));
            (1..9).for_each(tidy);
            first.forget(id);
            (9..11).for_each(tidy);
            assert!(first.is_open() && Arc::ptr_eq(&first, &shared()));
            tidy(11);
            assert!(!first.is_open() && first.register().is_err(), "{band:?}");
            assert!(!Arc::ptr_eq(&first, &shared()), "the next one is new");
        }
    }

    #[test]
    fn a_shared_connection_whose_server_takes_nothing_more_ends() {
        for band in [Band::of_thread(), every()] {
            let played = play(band, 1);
            let connection = played.pool.shared(played.orb.core(), None).unwrap();
            let mut message = Encoder::new();
            message.write_raw(&vec![0; 32 << 20]);
            let soon = Some(Monotonic::now() + Duration::from_millis(1));
            let sent = connection.send(&mut connection.sender(None).unwrap(), &message, soon, None);
            assert!(matches!(sent, Err((Written::Whole, Broken::TimedOut))));
            assert!(connection.is_open(), "it is not its caller's alone");
            let tidy = |at| played.pool.tidy(played.orb.core(), second(at), Duration::from_secs(3));
            (1..4).for_each(tidy);
            assert!(connection.is_open());
            // What the kernel still takes at first is progress.
            assert!((4..1000).any(|at| {
                tidy(at);
                !connection.is_open()
            }));
        }
    }

    #[test]
    fn slots_of_real_time_callers_are_theirs_until_the_server_hangs_up() {
        let played = play(every(), 1);
        played.connect().bound();
        for at in 1..4 {
            played.pool.tidy(played.orb.core(), second(at), Duration::ZERO);
        }
        played.pool.sweep(played.orb.core());
        let is_there = || played.pool.slots[0].try_lock().is_some_and(|slot| slot.is_some());
        assert!(is_there());
        drop(played.listener.accept().unwrap());
        let end = Monotonic::now() + Duration::from_secs(10);
        while is_there() {
            assert!(!end.is_past(), "it is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_time_to_connect_begins_when_there_is_a_place() {
        let played = play(Band::of_thread(), 1);
        let taken = played.pool.free(0).unwrap();
        let asked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let until = || {
                    asked.store(true, Ordering::SeqCst);
                    None
                };
                played.pool.connect(played.orb.core(), None, until, 0).map(drop)
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!asked.load(Ordering::SeqCst), "it runs while all places are taken");
            drop(taken);
            waiter.join().unwrap().unwrap();
        });
        assert!(asked.load(Ordering::SeqCst));
    }
}
