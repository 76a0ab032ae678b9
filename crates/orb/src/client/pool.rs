//! A pool of connections to one server, which calls check out exclusively.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{Endpoint, IoProperties, Stream};
use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{ArcCheckoutGuard, CheckoutCell, CheckoutHolder, LockScope, Mutex, PiMutex};
use corelane_sys::process;
use corelane_sys::thread::Scheduling;

use super::checkout::Checkout;
use super::connection::{ClientConnection, PoolSlot};
use super::context::ClientContext;
use super::hangup_monitor::HangupHandler;
use super::multiplexed::MultiplexedConnection;
use super::try_order::{Attempts, BRIEF_ATTEMPT, MAX_TRIED, TryOrder};
use crate::orb_context::OrbContext;
use crate::policy::CallDeadline;
use crate::rt::band::ConnectionBand;
use crate::rt::protocol::SocketSettings;
use crate::thread_context::PriorityBoost;

/// Maximum time for which a caller waits for the maintenance of its connection.
const MAX_MAINTENANCE_WAIT: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::from_millis(20) };

#[derive(Debug)]
pub(crate) struct ConnectionPool {
    endpoints: Arc<[Endpoint]>,
    sockets: SocketSettings,
    slots: Vec<Arc<PoolSlot>>,
    /// Number of slots, from the first, that calls have used. Callers raise the number by
    /// `fetch_max` (`AcqRel`) and load it `Acquire`.
    used: AtomicUsize,
    usage_samples: Mutex<Vec<UsageSample>>,
    slot_returned: Arc<EventCount>,
    band: ConnectionBand,
    multiplexed: PiMutex<MultiplexedState>,
    multiplexed_ready: EventCount,
    last_answered: AtomicUsize,
}

#[derive(Debug)]
struct UsageSample {
    uses: u32,
    /// Time of the first sample with this use count.
    unused_since: Monotonic,
}

#[derive(Debug)]
enum MultiplexedState {
    None,
    Connecting,
    Open(Arc<MultiplexedConnection>),
}

#[inline]
fn accepts_request(min_connection_id: u64, awaits: bool) -> impl Fn(&mut Option<Box<ClientConnection>>) -> bool {
    move |slot| slot.as_mut().is_some_and(|connection| connection.accepts_request(min_connection_id, awaits))
}

thread_local! {
    /// Index of the slot that this thread used last, in any pool.
    static LAST_SLOT: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug)]
pub(crate) enum AcquireError {
    AllBusy,
    ConnectFailed(io::Error),
    TimedOut,
}

impl ConnectionPool {
    pub(crate) fn new(endpoints: Arc<[Endpoint]>, sockets: SocketSettings, band: ConnectionBand, max: usize) -> Self {
        let slot_returned = Arc::new(EventCount::new("connection pool"));
        let slot = |_| {
            Arc::new(
                CheckoutCell::new("client connection", LockScope::Connection, None)
                    .with_event_count(Arc::clone(&slot_returned)),
            )
        };
        let slots = (0..max.max(1)).map(slot).collect();
        let usage_samples = Mutex::new("usage samples of a pool", LockScope::Orb, Vec::new());
        let multiplexed = PiMutex::new("multiplexed connection of a pool", LockScope::Lane, MultiplexedState::None);
        let multiplexed_ready = EventCount::new("multiplexed connection of a pool");
        let (used, last_answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        ConnectionPool {
            endpoints,
            sockets,
            slots,
            used,
            usage_samples,
            slot_returned,
            band,
            multiplexed,
            multiplexed_ready,
            last_answered,
        }
    }

    #[cfg(test)]
    pub(crate) fn forget_last_slot() {
        LAST_SLOT.set(0);
    }

    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    pub(crate) fn band(&self) -> ConnectionBand {
        self.band
    }

    /// Checks out a connection that no call uses, with an id of at least `min_connection_id`;
    /// `None` if there is none. If the thread's last slot is under maintenance, may wait for it,
    /// but not past `due`.
    pub(crate) fn take_idle(
        &self,
        min_connection_id: u64,
        awaits: bool,
        due: CallDeadline,
    ) -> Option<Checkout<'static>> {
        self.find_slot(PoolSlot::try_checkout_owned, accepts_request(min_connection_id, awaits), Some(due))
    }

    /// Checks out a connection that no call uses, with any id; the checkout borrows the pool. If
    /// the thread's last slot is under maintenance, may wait for it, but not past `due`.
    #[inline]
    pub(crate) fn borrow_idle(&self, awaits: bool, due: CallDeadline) -> Option<Checkout<'_>> {
        self.find_slot(PoolSlot::try_checkout_arc, accepts_request(0, awaits), Some(due))
    }

    /// Checks out the pool's only connection for a oneway, without waiting. Returns `None` if a
    /// call uses the connection. Also returns `None` if there are several connections, on which the
    /// oneway could overtake a oneway of another thread.
    pub(crate) fn borrow_idle_now(&self) -> Option<Checkout<'_>> {
        let accepts = accepts_request(0, false);
        let mut only = None;
        for slot in self.slots.get(..self.used.load(Ordering::Acquire))? {
            let mut checkout = slot.try_checkout_arc();
            let is_closed = |slot: &Option<Box<ClientConnection>>| slot.as_ref().is_none_or(|it| !it.is_usable());
            if let Some(slot) = checkout.take_if(|slot| is_closed(slot)) {
                slot.return_unused();
                continue;
            }
            if only.is_some() || !checkout.as_mut().is_some_and(|slot| accepts(slot)) {
                checkout.into_iter().chain(only).for_each(ArcCheckoutGuard::return_unused);
                return None;
            }
            only = checkout;
        }
        only.map(|slot| Checkout { slot })
    }

    /// Checks out a connection that has the rest of a message to send.
    pub(crate) fn borrow_unsent(&self) -> Option<Checkout<'_>> {
        let has_unsent = |slot: &mut Option<Box<ClientConnection>>| slot.as_ref().is_some_and(|it| it.has_unsent());
        self.find_slot(PoolSlot::try_checkout_arc, has_unsent, None)
    }

    /// Checks out the first slot that `wanted` accepts, beginning with the thread's last slot.
    /// Closes the unusable connections that it finds. If `due` is set and the last slot is under
    /// maintenance, may wait for this slot, but not past `due`.
    #[inline]
    fn find_slot<'p, 'k>(
        &'p self,
        take: impl Fn(&'p Arc<PoolSlot>) -> Option<ArcCheckoutGuard<'k, Option<Box<ClientConnection>>>>,
        wanted: impl Fn(&mut Option<Box<ClientConnection>>) -> bool,
        due: Option<CallDeadline>,
    ) -> Option<Checkout<'k>> {
        let used = self.used.load(Ordering::Acquire);
        let hint = LAST_SLOT.get();
        for turn in 0..used {
            let mut index = hint + turn;
            if index >= used {
                index %= used;
            }
            let slot = &self.slots[index];
            let tended = || due.filter(|_| turn == 0).and_then(|due| self.wait_for_maintenance(slot, due, &take));
            let Some(mut slot) = take(slot).or_else(tended) else { continue };
            if wanted(&mut slot) {
                LAST_SLOT.set(index);
                return Some(Checkout { slot });
            }
            if slot.as_ref().is_some_and(|connection| !connection.is_usable()) {
                *slot = None;
            }
            slot.return_unused();
        }
        None
    }

    /// Waits for a slot under maintenance, because on another connection the caller's request could
    /// overtake the oneways that it sent on this connection. Waits at most [`MAX_MAINTENANCE_WAIT`]
    /// and not past `due`. Does not wait in a real-time band, or while a call uses the slot.
    #[cold]
    fn wait_for_maintenance<'p, S>(
        &self,
        slot: &'p Arc<PoolSlot>,
        due: CallDeadline,
        take: impl Fn(&'p Arc<PoolSlot>) -> Option<S>,
    ) -> Option<S> {
        if self.band.is_real_time() || slot.holder() == CheckoutHolder::User {
            return None;
        }
        let now = Monotonic::now();
        let until = match due {
            CallDeadline::At(moment) => moment.min(now + MAX_MAINTENANCE_WAIT),
            // A call with a relative deadline may end late by an eighth of its time, so it waits
            // here for at most an eighth.
            CallDeadline::WithinFrom(duration, _) => now + MAX_MAINTENANCE_WAIT.min(duration / 8),
            CallDeadline::Never => now + MAX_MAINTENANCE_WAIT,
        };
        let look = || loop {
            if let Some(taken) = take(slot) {
                return Some(Some(taken));
            }
            match slot.holder() {
                CheckoutHolder::Maintenance => return None,
                CheckoutHolder::User => return Some(None),
                CheckoutHolder::None => {}
            }
        };
        self.slot_returned.wait(Some(until), look).flatten()
    }

    /// Checks out a connection whose id is at least `min_connection_id`: an idle connection, or a
    /// new one if the maximum permits it. Otherwise waits until `deadline` for a slot to be
    /// returned.
    #[cold]
    pub(crate) fn acquire(
        self: &Arc<Self>,
        context: &ClientContext,
        deadline: Option<Monotonic>,
        until: impl FnOnce() -> Option<Monotonic>,
        min_connection_id: u64,
    ) -> Result<Checkout<'static>, AcquireError> {
        let checkout = match self
            .take_free(min_connection_id)
            .or_else(|| self.slot_returned.wait(deadline, || self.take_free(min_connection_id)))
        {
            Some(checkout) => checkout,
            None => return Err(AcquireError::AllBusy),
        };
        self.ensure_connected(checkout, context, until(), min_connection_id)
    }

    #[cold]
    pub(crate) fn ensure_connected<'p>(
        self: &Arc<Self>,
        mut checkout: Checkout<'p>,
        context: &ClientContext,
        until: Option<Monotonic>,
        min_connection_id: u64,
    ) -> Result<Checkout<'p>, AcquireError> {
        let connection = &mut *checkout.slot;
        if connection.as_ref().is_some_and(|connection| connection.connection_id < min_connection_id) {
            *connection = None;
        }
        if connection.is_none() {
            *connection = Some(Box::new(self.open_connection(context, until)?));
        }
        Ok(checkout)
    }

    /// Takes an idle connection that accepts a request, else an empty slot, else any free
    /// connection. A free connection that is not idle may owe a reply to an abandoned call, which
    /// can delay the new call.
    pub(crate) fn take_free(&self, min_connection_id: u64) -> Option<Checkout<'static>> {
        self.find_slot(PoolSlot::try_checkout_owned, accepts_request(min_connection_id, true), None)
            .or_else(|| self.find_slot(PoolSlot::try_checkout_owned, |slot| slot.is_none(), None))
            .or_else(|| {
                let used = self.used.load(Ordering::Acquire);
                let free = |index: usize| Some((index, PoolSlot::try_checkout_owned(self.slots.get(index)?)?));
                let (index, slot) = (used..self.slots.len()).find_map(free)?;
                self.used.fetch_max(index + 1, Ordering::AcqRel);
                LAST_SLOT.set(index);
                Some(Checkout { slot })
            })
            .or_else(|| self.find_slot(PoolSlot::try_checkout_owned, |slot| slot.is_some(), None))
    }

    #[cold]
    pub(crate) fn has_multiplexed(&self) -> bool {
        matches!(&*self.multiplexed.lock(), MultiplexedState::Open(connection) if connection.is_open())
    }

    #[cold]
    pub(crate) fn multiplexed(
        &self,
        context: &ClientContext,
        until: Option<Monotonic>,
    ) -> Result<Arc<MultiplexedConnection>, AcquireError> {
        let look = || {
            let mut shared = self.multiplexed.lock();
            match &*shared {
                MultiplexedState::Open(connection) if connection.is_open() => Some(Some(Arc::clone(connection))),
                MultiplexedState::Connecting => None,
                MultiplexedState::None | MultiplexedState::Open(_) => {
                    *shared = MultiplexedState::Connecting;
                    Some(None)
                }
            }
        };
        match look().or_else(|| self.multiplexed_ready.wait(until, look)) {
            Some(Some(connection)) => return Ok(connection),
            Some(None) => {}
            None => return Err(AcquireError::TimedOut),
        }
        let made = self.connect_stream(context, until).and_then(|(stream, endpoint)| {
            let connection = Arc::new(MultiplexedConnection::new(
                stream,
                endpoint,
                (context.spares(), context.reply_memory()),
                self.band.range().is_none(),
            ));
            context.reply_readers().attach(context, self.band, &connection).map_err(AcquireError::ConnectFailed)?;
            Ok(connection)
        });
        *self.multiplexed.lock() =
            made.as_ref().map_or(MultiplexedState::None, |connection| MultiplexedState::Open(Arc::clone(connection)));
        self.multiplexed_ready.notify_all();
        made
    }

    fn open_connection(
        self: &Arc<Self>,
        context: &ClientContext,
        until: Option<Monotonic>,
    ) -> Result<ClientConnection, AcquireError> {
        let connection_id = context.allocate_connection_id();
        let (stream, endpoint) = self.connect_stream(context, until)?;
        if let Some(policy) = self.sockets.spin.or(context.config().spin_policy) {
            stream.set_spin_policy(policy);
        }
        let owner: Weak<Self> = Arc::downgrade(self);
        // Connections of real-time callers are always monitored, so that a hang-up is noticed
        // before the next call.
        let monitored =
            context.monitor(stream, owner, self.band.is_real_time()).map_err(AcquireError::ConnectFailed)?;
        let is_band_declared = self.band.range().is_none();
        let memory = (context.spares(), context.reply_memory());
        let mut connection = ClientConnection::new(monitored, endpoint, connection_id, is_band_declared, memory);
        if !self.band.is_real_time() {
            connection.set_batch_limit(context.config().oneway_batch.max_bytes);
        }
        Ok(connection)
    }

    fn endpoint_order(&self, context: &ClientContext) -> TryOrder {
        let now = crate::clock::now();
        let backing_off = |backing_off, (index, endpoint)| {
            backing_off | u64::from(context.backoff().is_backing_off(endpoint, now)) << index
        };
        let backing_off = match self.endpoints.len() {
            0 | 1 => 0,
            _ => self.endpoints.iter().take(MAX_TRIED).enumerate().fold(0, backing_off),
        };
        TryOrder::new(self.endpoints.len(), self.last_answered.load(Ordering::Relaxed), backing_off)
    }

    pub(crate) fn is_backing_off(&self, context: &ClientContext, now: Monotonic) -> bool {
        self.endpoints.iter().all(|endpoint| context.backoff().is_backing_off(endpoint, now))
    }

    fn connect_stream(
        &self,
        context: &ClientContext,
        until: Option<Monotonic>,
    ) -> Result<(Box<dyn Stream>, &Endpoint), AcquireError> {
        let mut failure = io::Error::new(io::ErrorKind::AddrNotAvailable, "the profile has no address");
        let mut attempts = Attempts::new(self.endpoint_order(context));
        let io = self.io_properties(context);
        while let Some((index, attempt_time)) = attempts.next() {
            let Some(endpoint) = self.endpoints.get(index) else { break };
            let begun = crate::clock::now();
            let due = attempt_time.deadline(begun, until, 1);
            match context.transports().connect_with_io_properties(endpoint, &self.sockets.properties, &io, due) {
                Ok(stream) => {
                    context.backoff().record_success(endpoint);
                    self.last_answered.store(index, Ordering::Relaxed);
                    self.set_code_point(context, &*stream);
                    return Ok((stream, endpoint));
                }
                Err(error) => {
                    if is_server_failure(&error, begun, due) {
                        context.backoff().record_failure(endpoint, crate::clock::now());
                    }
                    if error.kind() == io::ErrorKind::TimedOut {
                        attempts.record_timeout(index);
                    }
                    failure = error;
                }
            }
            if until.is_some_and(|until| crate::clock::now() >= until) {
                return Err(AcquireError::TimedOut);
            }
        }
        Err(AcquireError::ConnectFailed(failure))
    }

    /// Returns the service class of the connections' packets, and the highest fixed priority of the
    /// pool's callers as the kernel counts it.
    fn io_properties(&self, orb: &OrbContext) -> IoProperties {
        let native = self.band.scheduling(&orb.config().rt).ok().flatten();
        let priority = native.map(Scheduling::priority);
        let native_priority = priority.filter(|native| Scheduling::FIXED_PRIORITIES.contains(native));
        IoProperties { class: self.sockets.io, native_priority, cores: None }
    }

    fn set_code_point(&self, orb: &OrbContext, stream: &dyn Stream) {
        if self.sockets.network_priority
            && let Some(priority) = self.band.priority(&*orb.config().rt.priority_mapping)
        {
            orb.set_code_point(stream, priority);
        }
    }

    /// Raises the calling thread to the highest priority of the pool's callers until the result is
    /// dropped. Returns `None` if the priority cannot be mapped, or if the kernel refuses it.
    fn boost_priority(&self, orb: &OrbContext) -> Option<PriorityBoost> {
        let native = self.band.scheduling(&orb.config().rt).ok()?;
        PriorityBoost::at_least(native).ok()
    }

    /// Closes the connections that have been idle for the time `idle`. Callers with a real-time
    /// priority keep their exclusive connections, so that their next calls need not connect.
    #[cold]
    pub(crate) fn run_maintenance(&self, orb: &OrbContext, now: Monotonic, idle: Duration) {
        if !self.band.is_real_time() {
            self.maintain_slots(now, idle);
        }
        let shared = self.multiplexed.lock();
        let MultiplexedState::Open(connection) = &*shared else { return };
        let connection = Arc::clone(connection);
        drop(shared);
        let Some(_boost) = self.boost_priority(orb) else { return };
        if connection.run_maintenance(now, idle) {
            let mut shared = self.multiplexed.lock();
            if matches!(&*shared, MultiplexedState::Open(other) if Arc::ptr_eq(other, &connection)) {
                *shared = MultiplexedState::None;
            }
        }
    }

    fn maintain_slots(&self, now: Monotonic, idle: Duration) {
        let mut usage_samples = self.usage_samples.lock();
        let known = usage_samples.len();
        let look = |slot: &Arc<PoolSlot>| UsageSample { uses: slot.use_count(), unused_since: now };
        usage_samples.extend(self.slots[known..self.used.load(Ordering::Acquire)].iter().map(look));
        for (slot, last) in self.slots.iter().zip(&mut *usage_samples) {
            if slot.use_count() != last.uses {
                *last = look(slot);
            }
            let unused = now.since(last.unused_since);
            if unused == Duration::ZERO {
                continue;
            }
            let Some(mut taken) = slot.try_checkout_for_maintenance() else { continue };
            if slot.use_count() == last.uses {
                if let Some(connection) = &mut *taken {
                    connection.trim_buffers();
                }
                taken.take_if(|connection| !connection.is_usable() || unused >= idle);
            }
        }
    }

    fn close_unused(&self, unwanted: impl Fn(&mut ClientConnection) -> bool) {
        for slot in &self.slots {
            if let Some(mut slot) = slot.try_checkout_for_maintenance()
                && slot.as_deref_mut().is_some_and(&unwanted)
            {
                *slot = None;
            }
        }
    }

    pub(crate) fn close_idle(&self) {
        self.close_unused(|_| true);
        let mut shared = self.multiplexed.lock();
        if let MultiplexedState::Open(_) = *shared {
            *shared = MultiplexedState::None;
        }
    }
}

impl HangupHandler for ConnectionPool {
    /// Closes unusable connections that no call uses. A connection in use is closed when its call
    /// returns it to the pool.
    #[cold]
    fn close_hung_up(&self, orb: &OrbContext) {
        if let Some(_boost) = self.boost_priority(orb) {
            self.close_unused(|connection| !connection.is_usable());
        }
    }
}

/// Returns true if the error counts as a failure of the server. A time-out after a short attempt, a
/// lack of descriptors in this process, and a refusal by the transport (`QuotaExceeded`) do not
/// count. `begun` and `due` are the start and the deadline of the attempt.
fn is_server_failure(error: &io::Error, begun: Monotonic, due: Option<Monotonic>) -> bool {
    let had_time = || due.is_none_or(|due| due.since(begun) >= BRIEF_ATTEMPT / 2);
    match error.kind() {
        io::ErrorKind::TimedOut => had_time(),
        io::ErrorKind::QuotaExceeded => false,
        _ => !process::is_out_of_descriptors(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicBool;

    use corelane_sched::{Priority, PriorityBand};
    use corelane_sys::thread::{Tid, current_tid};
    use corelane_sys::{clock, counters};
    use corelane_wire::Encoder;
    use corelane_wire::giop::MessageKind;

    use super::*;
    use crate::Orb;
    use crate::client::hangup_monitor::tests::wait_for_end;
    use crate::exchange::{BytesSent, ExchangeError};
    use crate::receive::MAX_RETAINED_BYTES;
    use crate::rt::{RtConfig, SchedulingClass};

    struct PoolFixture {
        orb: Orb,
        pool: Arc<ConnectionPool>,
        listener: std::net::TcpListener,
    }

    const ORDINARY: fn() -> ConnectionBand = ConnectionBand::for_current_thread;

    fn every() -> ConnectionBand {
        ConnectionBand::for_range(PriorityBand { low: Priority::MIN, high: Priority::MAX })
    }

    fn fixture(band: ConnectionBand, max_connections: usize) -> PoolFixture {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let pool = Arc::new(ConnectionPool::new([endpoint].into(), SocketSettings::default(), band, max_connections));
        let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
        PoolFixture { orb: Orb::builder().real_time(rt).build().unwrap(), pool, listener }
    }

    impl PoolFixture {
        fn connect(&self) -> Checkout<'static> {
            self.pool.acquire(self.orb.core(), None, || None, 0).unwrap()
        }
    }

    const fn second(second: u64) -> Monotonic {
        Monotonic::from_nanos(second * 1_000_000_000)
    }

    /// The refusal of the transport says nothing about the server, whose address the next call must
    /// try.
    #[test]
    fn refusal_of_the_transport_is_no_failure_of_the_server() {
        let counts = |kind: io::ErrorKind| is_server_failure(&kind.into(), second(1), None);
        assert!(counts(io::ErrorKind::ConnectionRefused) && counts(io::ErrorKind::TimedOut));
        assert!(!counts(io::ErrorKind::QuotaExceeded));
    }

    /// If `final_message` skipped the reply, it would return CloseConnection, and the client would
    /// send the request again.
    #[test]
    fn close_connection_after_a_reply_does_not_deny_that_the_request_ran() {
        let fixture = fixture(ORDINARY(), 1);
        let mut connection = fixture.connect();
        let (mut server, _) = fixture.listener.accept().unwrap();
        let reply = b"GIOP\x01\x02\x01\x01\x0c\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0";
        server.write_all(&[&reply[..], b"GIOP\x01\x02\x01\x05\0\0\0\0"].concat()).unwrap();
        let limits = &fixture.orb.core().config().limits;
        let begun = clock::now();
        while !connection.has_begun_reply(7) {
            assert_eq!(connection.final_message(7, limits), None);
            assert!(begun.elapsed() < Duration::from_secs(60), "the reply must arrive within 60 s");
            std::thread::yield_now();
        }
        assert_eq!(connection.final_message(7, limits), None);
        assert!(connection.has_begun_reply(7));
        assert_eq!(connection.final_message(8, limits), Some(MessageKind::CloseConnection));
    }

    #[test]
    fn idle_connections_release_memory_then_close() {
        let fixture = fixture(ORDINARY(), 2);
        let mut checkout = fixture.connect();
        checkout.request_memory.reserve(2 * MAX_RETAINED_BYTES);
        drop(checkout);
        let run_maintenance = |at| fixture.pool.run_maintenance(fixture.orb.core(), second(at), Duration::from_secs(9));
        let memory = || {
            fixture.pool.take_idle(0, true, CallDeadline::Never).map(|connection| connection.request_memory.capacity())
        };
        run_maintenance(1);
        assert!(memory().is_some_and(|memory| memory > MAX_RETAINED_BYTES));
        run_maintenance(2);
        run_maintenance(3);
        assert_eq!(memory(), Some(0));
        (4..13).for_each(run_maintenance);
        assert_eq!(memory(), Some(0));
        (13..22).for_each(run_maintenance);
        assert_eq!(memory(), Some(0));
        (22..32).for_each(run_maintenance);
        assert_eq!(memory(), None);
    }

    /// On another connection, a oneway would overtake the caller's earlier oneways.
    #[test]
    fn caller_waits_while_its_connection_is_under_maintenance() {
        let fixture = fixture(ORDINARY(), 2);
        let (first, second) = (fixture.connect(), fixture.connect());
        let connection_id = first.connection_id;
        drop((first, second));
        let tended = fixture.pool.slots[0].try_checkout_for_maintenance().unwrap();
        let task = OnceLock::new();
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                task.set(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                fixture.pool.take_idle(0, true, CallDeadline::Never).map(|connection| connection.connection_id)
            });
            let sleeps =
                |task| std::fs::read_to_string(format!("/proc/{task}/stat")).is_ok_and(|stat| stat.contains(") S "));
            while !caller.is_finished() && !task.get().is_some_and(|task| sleeps(task.display())) {
                std::thread::yield_now();
            }
            drop(tended);
            assert_eq!(caller.join().unwrap(), Some(connection_id));
        });
        ConnectionPool::forget_last_slot();
        let taken = fixture.pool.take_idle(0, true, CallDeadline::Never).unwrap();
        assert_eq!(taken.connection_id, connection_id);
        ConnectionPool::forget_last_slot();
        let before = counters::snapshot();
        assert_ne!(fixture.pool.take_idle(0, true, CallDeadline::Never).unwrap().connection_id, connection_id);
        assert_eq!(
            (counters::snapshot() - before).futex_calls,
            0,
            "the caller must not wait for a slot that another caller uses"
        );
    }

    #[test]
    fn late_or_real_time_caller_takes_another_connection() {
        for (band, due, waits) in [(ORDINARY(), CallDeadline::At(second(0)), 1), (every(), CallDeadline::Never, 0)] {
            let fixture = fixture(band, 2);
            let (mut first, mut other) = (fixture.connect(), fixture.connect());
            first.set_band_declared();
            other.set_band_declared();
            let connection_id = other.connection_id;
            drop((first, other));
            ConnectionPool::forget_last_slot();
            let _tended = fixture.pool.slots[0].try_checkout_for_maintenance().unwrap();
            let before = counters::snapshot();
            assert_eq!(fixture.pool.take_idle(0, true, due).unwrap().connection_id, connection_id);
            assert_eq!((counters::snapshot() - before).futex_calls, waits, "{band:?}");
        }
    }

    #[test]
    fn slot_in_use_gets_no_maintenance() {
        let fixture = fixture(ORDINARY(), 2);
        let locks = |at| {
            drop(fixture.pool.take_idle(0, true, CallDeadline::Never));
            let before = counters::snapshot();
            fixture.pool.run_maintenance(fixture.orb.core(), second(at), Duration::from_secs(9));
            fixture.pool.run_maintenance(fixture.orb.core(), second(at), Duration::from_secs(9));
            (counters::snapshot() - before).locks
        };
        drop(fixture.connect());
        let in_use = locks(1);
        assert_eq!((locks(2), locks(3)), (in_use, in_use));
        let before = counters::snapshot();
        fixture.pool.run_maintenance(fixture.orb.core(), second(4), Duration::from_secs(9));
        assert_eq!((counters::snapshot() - before).locks, in_use / 2 + 1);
    }

    #[test]
    fn maintenance_does_not_count_as_use() {
        let fixture = fixture(ORDINARY(), 2);
        drop(fixture.connect());
        for time in 1..=10 {
            assert!(fixture.pool.slots[0].try_checkout_for_maintenance().unwrap().is_some());
            fixture.pool.run_maintenance(fixture.orb.core(), second(time), Duration::from_secs(9));
            fixture.pool.close_hung_up(fixture.orb.core());
            assert!(fixture.pool.find_slot(PoolSlot::try_checkout_owned, |_| false, None).is_none());
        }
        assert!(fixture.pool.slots[0].try_checkout_for_maintenance().unwrap().is_none());
    }

    /// Counts 1,000 calls while the clock stands still, which makes the connection busy.
    fn call(checkout: &mut Checkout<'_>) {
        crate::clock::set(Some(Monotonic::now()));
        for _ in 0..1000 {
            checkout.next_request_id();
        }
        crate::clock::set(None);
    }

    #[test]
    fn connections_of_real_time_callers_are_always_monitored() {
        for (band, is_unmonitored) in [(ORDINARY(), true), (every(), false)] {
            let fixture = fixture(band, 1);
            fixture.orb.core().hangup_monitor().replace_thread();
            let mut checkout = fixture.connect();
            call(&mut checkout);
            assert_eq!(checkout.is_unmonitored(), is_unmonitored, "{band:?}");
        }
    }

    #[cfg(feature = "shared-memory")]
    #[test]
    fn connections_over_shared_memory_are_always_monitored() {
        let path = std::env::temp_dir().join(format!("corelane-pool-{}", std::process::id()));
        let server = Orb::builder().listen(format!("shm:{}", path.display())).build().unwrap();
        let endpoint = Endpoint::shared_memory(path);
        let pool = Arc::new(ConnectionPool::new([endpoint].into(), SocketSettings::default(), ORDINARY(), 1));
        let orb = Orb::builder().build().unwrap();
        let mut checkout = pool.acquire(orb.core(), None, || None, 0).unwrap();
        call(&mut checkout);
        assert!(!checkout.is_unmonitored());
        drop((checkout, server));
    }

    #[test]
    fn oneway_avoids_a_connection_whose_peer_closed() {
        let fixture = fixture(ORDINARY(), 2);
        fixture.orb.core().hangup_monitor().replace_thread();
        let (mut first, second) = (fixture.connect(), fixture.connect());
        let connection_id = second.connection_id;
        call(&mut first);
        assert!(first.is_unmonitored());
        let peer = fixture.listener.accept().unwrap().0;
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        wait_for_end(&peer);
        drop((second, first));
        ConnectionPool::forget_last_slot();
        let taken = fixture.pool.take_idle(0, false, CallDeadline::Never).unwrap();
        assert_eq!(taken.connection_id, connection_id);
        assert!(fixture.pool.slots[0].try_checkout().unwrap().is_none(), "the first connection must be closed");
    }

    #[test]
    fn idle_multiplexed_connections_close() {
        for band in [ORDINARY(), every()] {
            let fixture = fixture(band, 1);
            let shared = || fixture.pool.multiplexed(fixture.orb.core(), None).unwrap();
            let first = shared();
            let (id, _pending) = first.register().unwrap();
            let run_maintenance =
                |at| fixture.pool.run_maintenance(fixture.orb.core(), second(at), Duration::from_secs(3));
            (1..9).for_each(run_maintenance);
            first.abandon(id);
            (9..11).for_each(run_maintenance);
            assert!(first.is_open() && Arc::ptr_eq(&first, &shared()));
            run_maintenance(11);
            assert!(!first.is_open() && first.register().is_err(), "{band:?}");
            assert!(
                !Arc::ptr_eq(&first, &shared()),
                "the pool must make a new connection after the idle one has closed"
            );
        }
    }

    #[test]
    fn multiplexed_connection_closes_when_the_server_stops_reading() {
        for band in [ORDINARY(), every()] {
            let fixture = fixture(band, 1);
            let connection = fixture.pool.multiplexed(fixture.orb.core(), None).unwrap();
            let mut message = Encoder::new();
            message.write_bytes(&vec![0; 32 << 20]);
            let soon = Some(Monotonic::now() + Duration::from_millis(1));
            let sent = connection.send(&mut connection.sender(None).unwrap(), &message, soon, None);
            assert!(matches!(sent, Err((BytesSent::All, ExchangeError::TimedOut))));
            assert!(connection.is_open(), "other callers may share the connection, so it stays open");
            let run_maintenance =
                |at| fixture.pool.run_maintenance(fixture.orb.core(), second(at), Duration::from_secs(3));
            (1..4).for_each(run_maintenance);
            assert!(connection.is_open());
            assert!((4..1000).any(|at| {
                run_maintenance(at);
                !connection.is_open()
            }));
        }
    }

    #[test]
    fn real_time_connections_stay_open_until_the_server_hangs_up() {
        let fixture = fixture(every(), 1);
        fixture.connect().set_band_declared();
        for at in 1..4 {
            fixture.pool.run_maintenance(fixture.orb.core(), second(at), Duration::ZERO);
        }
        fixture.pool.close_hung_up(fixture.orb.core());
        let is_there = || fixture.pool.slots[0].try_checkout().is_some_and(|slot| slot.is_some());
        assert!(is_there());
        drop(fixture.listener.accept().unwrap());
        let end = Monotonic::now() + Duration::from_secs(60);
        while is_there() {
            assert!(!end.is_past(), "the connection must close when the server hangs up");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn connect_timeout_starts_when_a_slot_is_free() {
        let fixture = fixture(ORDINARY(), 1);
        let taken = fixture.pool.take_free(0).unwrap();
        let asked = AtomicBool::new(false);
        let who = OnceLock::new();
        let is_asleep = || {
            let Some(tid) = who.get().map(|tid: &Tid| tid.as_raw()) else { return false };
            let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('S')
        };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                who.set(current_tid()).unwrap();
                let until = || {
                    asked.store(true, Ordering::SeqCst);
                    None
                };
                fixture.pool.acquire(fixture.orb.core(), None, until, 0).map(drop)
            });
            while !is_asleep() {
                assert!(!waiter.is_finished(), "the caller must wait for a free slot");
                std::thread::yield_now();
            }
            assert!(!asked.load(Ordering::SeqCst), "`until` must not be called while all slots are in use");
            drop(taken);
            waiter.join().unwrap().unwrap();
        });
        assert!(asked.load(Ordering::SeqCst));
    }
}
