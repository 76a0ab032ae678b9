//! The state of an ORB that all of its layers share.

use std::any::Any;
#[cfg(feature = "keep-octets")]
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use corelane_net::{Endpoint, Stream, Transports};
use corelane_sched::Priority;
use corelane_sys::buffer::RegionCache;
use corelane_sys::clock::Monotonic;
use corelane_sys::cpu_budget::CpuBudgetMonitor;
use corelane_sys::event_count::EventCount;
use corelane_sys::thread::{self, CpuSet};
use corelane_wire::exception::minor;

use crate::config::Config;
use crate::event::{Event, Events};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::interceptor::InterceptionPoints;
#[cfg(feature = "keep-octets")]
use crate::kept_octets::KeptBudget;
use crate::{listen_address, text};

const RUNNING: u8 = 0;
const ENDING: u8 = 1;
const CLOSED: u8 = 2;
const ENDED: u8 = 3;

/// Maximum size of the cache of memory for large messages, in messages of the maximum size.
const CACHED_MESSAGES: usize = 4;
/// Additional maximum size of the cache in bytes, for bytes that were read after a message.
const CACHED_REST: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct OrbContext {
    config: Config,
    transports: Transports,
    events: Events,
    /// A random number that identifies the ORB, and that every transient key contains.
    stamp: u64,
    cores: Option<CpuSet>,
    listening: OnceLock<Vec<Endpoint>>,
    published: OnceLock<Vec<Endpoint>>,
    next_connection_id: AtomicU64,
    spares: RegionCache,
    #[cfg(feature = "keep-octets")]
    kept_budget: Arc<KeptBudget>,
    /// Raised with AcqRel or Release by the threads that shut the ORB down, and never lowered.
    state: AtomicU8,
    closing: EventCount,
    nowhere_reported: AtomicBool,
    cpu_monitor: OnceLock<CpuBudgetMonitor>,
    fork_generation: u64,
    interceptors: Option<Box<dyn InterceptionPoints>>,
}

impl OrbContext {
    pub(crate) fn new(config: Config, transports: Transports, events: Events, stamp: u64) -> Self {
        let max_cached = usize::try_from(config.limits.max_message_size)
            .unwrap_or(usize::MAX)
            .saturating_mul(CACHED_MESSAGES)
            .saturating_add(CACHED_REST);
        let spares = RegionCache::with_max_bytes(max_cached);
        OrbContext {
            #[cfg(feature = "keep-octets")]
            kept_budget: KeptBudget::new(config.max_kept_memory),
            config,
            transports,
            events,
            stamp,
            cores: thread::affinity(None).ok(),
            listening: OnceLock::new(),
            published: OnceLock::new(),
            next_connection_id: AtomicU64::new(1),
            spares,
            state: AtomicU8::new(RUNNING),
            closing: EventCount::new("end of the ORB"),
            nowhere_reported: AtomicBool::new(false),
            cpu_monitor: OnceLock::new(),
            fork_generation: corelane_sys::process::fork_generation(),
            interceptors: None,
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn transports(&self) -> &Transports {
        &self.transports
    }

    pub(crate) fn set_interceptors(&mut self, points: Box<dyn InterceptionPoints>) {
        self.interceptors = Some(points);
    }

    #[inline]
    pub(crate) fn interceptors(&self) -> Option<&dyn InterceptionPoints> {
        self.interceptors.as_deref()
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    pub(crate) fn cores(&self) -> Option<CpuSet> {
        self.cores
    }

    #[inline]
    pub(crate) fn spares(&self) -> &RegionCache {
        &self.spares
    }

    #[cfg(feature = "keep-octets")]
    pub(crate) fn kept_budget(&self) -> &Arc<KeptBudget> {
        &self.kept_budget
    }

    pub(crate) fn cpu_monitor(&self) -> Option<&CpuBudgetMonitor> {
        self.cpu_monitor.get()
    }

    pub(crate) fn set_cpu_monitor(&self, monitor: CpuBudgetMonitor) {
        let _ = self.cpu_monitor.set(monitor);
    }

    pub(crate) fn allocate_connection_id(&self) -> u64 {
        self.next_connection_id.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn peek_connection_id(&self) -> u64 {
        self.next_connection_id.load(Ordering::Relaxed)
    }

    pub(crate) fn set_listening(&self, listening: Vec<Endpoint>) {
        let published = if self.config.publish.is_empty() {
            listening.iter().map(listen_address::publishable).collect()
        } else {
            listen_address::fill_ports(&self.config.publish, &listening)
        };
        let _ = self.listening.set(listening);
        let _ = self.published.set(published);
    }

    pub(crate) fn listening(&self) -> &[Endpoint] {
        self.listening.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn published_endpoints(&self) -> &[Endpoint] {
        self.published.get().map_or(&[][..], Vec::as_slice)
    }

    pub(crate) fn published(&self, endpoint: &Endpoint) -> Endpoint {
        let host = self.config.publish.iter().find_map(|published| match published {
            Endpoint::Tcp { host, .. } => Some(host),
            _ => None,
        });
        match (endpoint, host) {
            (Endpoint::Tcp { port, .. }, Some(host)) => Endpoint::tcp(host, *port),
            _ => listen_address::publishable(endpoint),
        }
    }

    #[cold]
    pub(crate) fn report_nowhere_reference(&self, type_id: &str) {
        if !self.nowhere_reported.swap(true, Ordering::Relaxed) {
            self.events.report(&Event::ReferenceWithoutAddress { type_id: type_id.to_owned() });
        }
    }

    #[cold]
    pub(crate) fn set_code_point(&self, stream: &dyn Stream, priority: Priority) {
        if let Some(dscp) = self.config.rt.network_mapping.as_ref().and_then(|network| network.to_dscp(priority))
            && let Err(error) = stream.set_dscp(dscp)
        {
            let peer = stream.peer().clone();
            self.events.report(&Event::DscpRefused { peer, dscp, error: error.to_string() });
        }
    }

    /// Fails with BAD_INV_ORDER once the shutdown has begun, and in a process that was forked from
    /// the ORB's process.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<(), SystemException> {
        if self.state.load(Ordering::Acquire) == RUNNING && !self.is_forked_copy() {
            return Ok(());
        }
        self.unusable_error()
    }

    #[cold]
    fn unusable_error(&self) -> Result<(), SystemException> {
        if self.is_forked_copy() {
            return Err(SystemException::new(Kind::BadInvOrder, 0, Completion::No).with_message(
                "this process was forked from the process that made the ORB; make a new ORB in this process",
            ));
        }
        Err(SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No)
            .with_message("the ORB has been shut down"))
    }

    /// Returns true in a process that was forked from the ORB's process. Such a process has the
    /// connections of its parent, but none of its threads.
    #[inline]
    pub(crate) fn is_forked_copy(&self) -> bool {
        corelane_sys::process::fork_generation() != self.fork_generation
    }

    pub(crate) fn begin_shutdown(&self) -> bool {
        self.state.compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(crate) fn set_closed(&self) {
        // A thread that stopped waiting may have set `ENDED`, which must stay.
        self.state.fetch_max(CLOSED, Ordering::AcqRel);
        self.closing.notify_all();
    }

    pub(crate) fn wait_until_closed(&self, deadline: Option<Monotonic>) {
        let through = || (self.state.load(Ordering::Acquire) >= CLOSED).then_some(());
        let _ = self.closing.wait(deadline, through);
    }

    pub(crate) fn set_ended(&self) {
        self.state.store(ENDED, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDED
    }

    #[cold]
    pub(crate) fn report_panic(&self, interface: &'static str, operation: &[u8], panic: &(dyn Any + Send)) {
        let message = panic_text(panic);
        self.events().report(&Event::ServantPanicked { interface, operation: text::shown(operation), message });
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        (None, None) => "a panic value that is not text".to_owned(),
    }
}
