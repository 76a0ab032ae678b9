//! Admission of streams: a stream is admitted only if it and all streams that were admitted before
//! it get their guarantees.
//!
//! Each stream is a periodic task, whose execution time follows from the packets and bytes of a
//! period ([`ProcessingCost`]). With the new stream, all of the following must be true:
//!
//! 1. on the new stream's core, every stream with a deadline and every dispatch task meets its
//!    deadline (worst-case response times of `corelane_sched`);
//! 2. the streams and dispatch tasks of this core leave best effort its minimum of the processor;
//! 3. all streams together, with framing, leave best effort its minimum of the link;
//! 4. all streams together need at most the memory for streams.
//!
//! A refusal states the violated bound and the largest number of packets that would fit.

use std::collections::BTreeMap;
use std::fmt;

use corelane_sched::analysis::response_time::response_time;
use corelane_sched::analysis::sensitivity::find_largest;
use corelane_sched::task::{Nanos, Timing, TimingError, Utilization};

use crate::budget::{Budget, BudgetError, BudgetServerKind};
use crate::rate::PacketRate;

/// Bytes that Ethernet adds to a packet on the link: preamble 8, header 14, check sequence 4, gap
/// 12.
pub const ETHERNET_OVERHEAD_BYTES: u64 = 38;
/// Size in bytes of the shortest packet that Ethernet sends without padding.
pub const MIN_ETHERNET_PAYLOAD_BYTES: u64 = 46;
/// Size in bytes of the shortest TCP packet: an IPv4 and a TCP header.
pub const MIN_PACKET_BYTES: u32 = 40;

/// Minimum shares of the link and of each core for best effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestEffortMinimum {
    /// Minimum share of the link, in thousandths.
    pub link_thousandths: u16,
    /// Minimum share of each core, in thousandths.
    pub processor_thousandths: u16,
}

/// Processor time of protocol processing in nanoseconds, as measured on the machine
/// ([`ProcessingCost::measure`]) or configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessingCost {
    /// Time for each period: wake-up and going to sleep of the thread.
    pub per_period: Nanos,
    /// Time for each packet.
    pub per_packet: Nanos,
    /// Time for each 1,024 bytes of packets, rounded up to whole units of 1,024 bytes.
    pub per_kibibyte: Nanos,
}

/// The resources that streams share.
#[derive(Clone, Debug)]
pub struct StreamResources {
    /// Rate of the link in bits per second.
    pub link_bits_per_second: u64,
    /// Number of VLAN tags in each frame.
    pub vlan_tags: u8,
    /// Cost of protocol processing.
    pub processing_cost: ProcessingCost,
    /// Memory in bytes for all streams together.
    pub max_total_memory: u64,
    /// Minimum shares for best effort.
    pub best_effort_minimum: BestEffortMinimum,
    /// Dispatch tasks on each core, with the native priorities of their threads.
    pub dispatch_tasks: BTreeMap<u32, Vec<(u8, Timing)>>,
}

/// Load that a stream causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamLoad {
    /// A budget for each period, with a deadline.
    Periodic {
        /// The packets and bytes of each period.
        budget: Budget,
        /// Latest time in nanoseconds after the start of a period at which the period's packets
        /// must be processed.
        deadline: Nanos,
        /// Expiry of the unused budget. A stream with a deferrable budget may use the budget of one
        /// period at the end of this period, immediately before the budget of the next period.
        service: BudgetServerKind,
    },
    /// A maximum rate of packets that are processed in the receive context. This processing
    /// interrupts every thread of the core.
    Capped(PacketRate),
    /// No bound. Such a stream is never admitted.
    Unbounded,
}

/// A stream that requests admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// Number of the stream.
    pub stream: u32,
    /// Core of the stream's protocol thread, or of its receive queue for [`StreamLoad::Capped`].
    pub core: u32,
    /// Native priority of the stream's protocol thread; ignored for [`StreamLoad::Capped`].
    pub priority: u8,
    /// The stream's load.
    pub load: StreamLoad,
    /// Size in bytes of the stream's largest packet, with IP and TCP headers. A number below
    /// [`MIN_PACKET_BYTES`] counts as [`MIN_PACKET_BYTES`].
    pub max_packet_size: u32,
    /// Maximum time in nanoseconds for which work of lower priority, such as a softirq, keeps the
    /// stream's thread from running. Ignored for [`StreamLoad::Capped`].
    pub max_blocking: Nanos,
    /// Maximum memory of the stream in bytes
    /// ([`MemoryBound::total_bytes`](crate::memory::MemoryBound::total_bytes)).
    pub max_memory: u64,
}

/// A task that a refusal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionTask {
    /// The protocol thread of a stream.
    Stream(u32),
    /// A dispatch task, by its index on the core.
    Dispatch(usize),
}

impl fmt::Display for AdmissionTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(stream) => write!(f, "stream {stream}"),
            Self::Dispatch(place) => write!(f, "dispatch task {place}"),
        }
    }
}

/// The bound that a stream violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolatedBound {
    /// The budget is invalid.
    Budget(BudgetError),
    /// A time of the stream's task is invalid, for example an execution time longer than the
    /// deadline.
    Timing(TimingError),
    /// An admitted stream has the number of the requested stream.
    DuplicateStream,
    /// The load is [`StreamLoad::Unbounded`].
    UnboundedLoad,
    /// A task would miss its deadline.
    ResponseTime {
        /// The task that would be late.
        task: AdmissionTask,
        /// The task's worst-case response time in nanoseconds with the new stream; `None` if it has
        /// no bound.
        response: Option<Nanos>,
        /// The task's deadline in nanoseconds.
        deadline: Nanos,
    },
    /// The core would keep less than its minimum for best effort.
    Processor {
        /// The core of the requested stream.
        core: u32,
        /// Utilization that the core's tasks need.
        needed: Utilization,
        /// Utilization that the core's tasks may use.
        available: Utilization,
    },
    /// The link would keep less than its minimum for best effort.
    Link {
        /// Bits per second of all streams, with framing.
        needed: u64,
        /// Bits per second that streams may use.
        available: u64,
    },
    /// The streams would need more memory than they may use.
    Memory {
        /// Bytes that all streams need.
        needed: u64,
        /// Bytes that streams may use.
        available: u64,
    },
}

/// Refusal of a stream, which leaves the admitted streams unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRefusal {
    /// The first violated bound. [`ViolatedBound::DuplicateStream`] and
    /// [`ViolatedBound::UnboundedLoad`] are checked first, and then the others in the order of
    /// [`ViolatedBound`].
    pub violated_bound: ViolatedBound,
    /// The largest number of packets in each period with which the stream would be admitted, if
    /// nothing else changes. For [`StreamLoad::Capped`], the number counts the packets in each
    /// second. `None` if no number would be admitted.
    pub admissible_packets: Option<u32>,
}

impl fmt::Display for ViolatedBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Budget(error) => error.fmt(f),
            Self::Timing(error) => error.fmt(f),
            Self::DuplicateStream => f.write_str("the stream is admitted already"),
            Self::UnboundedLoad => f.write_str("the class of the stream has no bound on its load"),
            Self::ResponseTime { task, response: Some(response), deadline } => {
                let late = response.saturating_sub(deadline);
                write!(f, "{task} would be done {response} ns after it begins, {late} ns after its deadline")
            }
            Self::ResponseTime { task, response: None, deadline } => {
                write!(f, "{task} would have no bound; its deadline is {deadline} ns")
            }
            Self::Processor { core, needed, available } => {
                let over = needed.saturating_sub(available);
                write!(f, "core {core} would be used to {needed} by streams and dispatch, {over} over {available}")
            }
            Self::Link { needed, available } => {
                let over = needed.saturating_sub(available);
                write!(f, "the link would carry {needed} bit/s of streams, {over} over {available}")
            }
            Self::Memory { needed, available } => {
                let over = needed.saturating_sub(available);
                write!(f, "streams would hold {needed} bytes, {over} over {available}")
            }
        }
    }
}

impl fmt::Display for StreamRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.admissible_packets {
            Some(packets) => write!(f, "{}; {packets} packets would fit", self.violated_bound),
            None => write!(f, "{}; no number of packets would fit", self.violated_bound),
        }
    }
}

impl std::error::Error for StreamRefusal {}

/// The admission of streams to one interface: the resources, and the admitted streams.
///
/// # Examples
/// ```
/// # use std::collections::BTreeMap;
/// use corelane_rio::admission::{StreamAdmissionState, StreamLoad, BestEffortMinimum, ProcessingCost, StreamResources, StreamRequest};
/// use corelane_rio::budget::{Budget, BudgetServerKind};
///
/// let mut admission = StreamAdmissionState::new(StreamResources {
///     link_bits_per_second: 155_000_000,
///     vlan_tags: 0,
///     processing_cost: ProcessingCost { per_period: 10_000, per_packet: 5_000, per_kibibyte: 500 },
///     max_total_memory: 16 << 20,
///     best_effort_minimum: BestEffortMinimum { link_thousandths: 200, processor_thousandths: 100 },
///     dispatch_tasks: BTreeMap::new(),
/// });
/// let (service, deadline) = (BudgetServerKind::Polling, 10_000_000);
/// let stream = |stream, packets| StreamRequest {
///     stream,
///     core: 0,
///     priority: 50,
///     load: StreamLoad::Periodic { budget: Budget::of_packets(packets, 10_000_000), deadline, service },
///     max_packet_size: 1_500,
///     max_blocking: 0,
///     max_memory: 1 << 20,
/// };
/// assert!(admission.admit(stream(1, 45)).is_ok());
/// let refusal = admission.admit(stream(2, 60)).unwrap_err();
/// assert_eq!(refusal.admissible_packets, Some(55));
/// assert!(admission.admit(stream(2, 55)).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct StreamAdmissionState {
    resources: StreamResources,
    admitted: Vec<StreamRequest>,
}

impl StreamAdmissionState {
    /// Creates a state without streams.
    #[must_use]
    pub fn new(resources: StreamResources) -> Self {
        Self { resources, admitted: Vec::new() }
    }

    /// Returns the admitted streams.
    #[must_use]
    pub fn admitted(&self) -> &[StreamRequest] {
        &self.admitted
    }

    /// Admits a stream if no bound is violated with it.
    ///
    /// # Errors
    /// [`StreamRefusal`] with the violated bound and the number of packets that would fit.
    pub fn admit(&mut self, request: StreamRequest) -> Result<(), StreamRefusal> {
        if let Err(bound) = self.check(&request) {
            return Err(StreamRefusal { violated_bound: bound, admissible_packets: self.admissible_packets(&request) });
        }
        self.admitted.push(request);
        Ok(())
    }

    /// Removes a stream. Returns true if it was admitted.
    pub fn remove(&mut self, stream: u32) -> bool {
        let before = self.admitted.len();
        self.admitted.retain(|request| request.stream != stream);
        self.admitted.len() < before
    }

    /// Checks every bound for the admitted streams and `request` together.
    ///
    /// # Errors
    /// The first violated bound.
    pub fn check(&self, request: &StreamRequest) -> Result<(), ViolatedBound> {
        if self.admitted.iter().any(|admitted| admitted.stream == request.stream) {
            return Err(ViolatedBound::DuplicateStream);
        }
        if request.load == StreamLoad::Unbounded {
            return Err(ViolatedBound::UnboundedLoad);
        }
        if let StreamLoad::Periodic { budget, .. } = request.load {
            budget.check().map_err(ViolatedBound::Budget)?;
        }
        let timing = self.resources.timing(request);
        if let StreamLoad::Periodic { .. } = request.load {
            timing.check().map_err(ViolatedBound::Timing)?;
        }
        self.check_deadlines(request)?;
        self.check_processor(request)?;
        self.check_link(request)?;
        self.check_memory(request)
    }

    fn streams<'a>(&'a self, request: &'a StreamRequest) -> impl Iterator<Item = &'a StreamRequest> {
        self.admitted.iter().chain([request])
    }

    /// Returns the tasks on the core of `request`: the streams, with `request`, and the dispatch
    /// tasks.
    fn tasks(&self, request: &StreamRequest) -> Vec<CoreTask> {
        let dispatch = self.resources.dispatch_tasks.get(&request.core).map_or(&[][..], Vec::as_slice);
        let dispatch = dispatch.iter().enumerate().map(|(place, (priority, timing))| CoreTask {
            priority: u16::from(*priority),
            task: AdmissionTask::Dispatch(place),
            own: *timing,
            for_others: *timing,
        });
        let streams = self.streams(request).filter(|stream| stream.core == request.core);
        streams.map(|stream| self.resources.core_task(stream)).chain(dispatch).collect()
    }

    fn check_deadlines(&self, request: &StreamRequest) -> Result<(), ViolatedBound> {
        let tasks = self.tasks(request);
        for (place, CoreTask { priority, task, own, .. }) in tasks.iter().enumerate() {
            if *priority == RECEIVE_CONTEXT {
                // Packets in the receive context have no deadline.
                continue;
            }
            let above =
                tasks.iter().enumerate().filter(|(other, above)| *other != place && above.priority >= *priority);
            let interfering: Vec<Timing> = above.map(|(_, above)| above.for_others).collect();
            let response = response_time(own, &interfering);
            if !response.is_some_and(|response| response.meets_deadline_of(own)) {
                let response = response.map(|response| response.from_arrival);
                return Err(ViolatedBound::ResponseTime { task: *task, response, deadline: own.deadline });
            }
        }
        Ok(())
    }

    fn check_processor(&self, request: &StreamRequest) -> Result<(), ViolatedBound> {
        let tasks = self.tasks(request);
        let needed = Utilization::total(tasks.iter().map(|task| &task.for_others));
        let minimum =
            u64::from(self.resources.best_effort_minimum.processor_thousandths) * (Utilization::ONE.0 / 1_000);
        let available = Utilization::ONE.saturating_sub(Utilization(minimum));
        if needed > available {
            return Err(ViolatedBound::Processor { core: request.core, needed, available });
        }
        Ok(())
    }

    fn check_link(&self, request: &StreamRequest) -> Result<(), ViolatedBound> {
        let resources = &self.resources;
        let rates = self.streams(request).map(|stream| resources.bits_per_second(stream));
        let needed = rates.fold(0, u64::saturating_add);
        let share = 1_000_u128.saturating_sub(resources.best_effort_minimum.link_thousandths.into());
        let available = u128::from(resources.link_bits_per_second) * share / 1_000;
        let available = u64::try_from(available).unwrap_or(u64::MAX);
        if needed > available {
            return Err(ViolatedBound::Link { needed, available });
        }
        Ok(())
    }

    fn check_memory(&self, request: &StreamRequest) -> Result<(), ViolatedBound> {
        let needed = self.streams(request).map(|stream| stream.max_memory).fold(0, u64::saturating_add);
        let available = self.resources.max_total_memory;
        if needed > available {
            return Err(ViolatedBound::Memory { needed, available });
        }
        Ok(())
    }

    /// Returns the largest number of packets with which no bound is violated. A search by halves
    /// finds it, because more packets never remove a violation.
    fn admissible_packets(&self, request: &StreamRequest) -> Option<u32> {
        let fits = |packets: u64| {
            let request = u32::try_from(packets).ok().and_then(|packets| request.with_packets(packets));
            request.is_some_and(|request| self.check(&request).is_ok())
        };
        let most = request.packets().max(1);
        find_largest(1, most.into(), fits).and_then(|packets| u32::try_from(packets).ok())
    }
}

/// Priority of the tasks of [`StreamLoad::Capped`]: above all native priorities.
const RECEIVE_CONTEXT: u16 = u16::MAX;

struct CoreTask {
    priority: u16,
    task: AdmissionTask,
    /// Timing for the task's own response time.
    own: Timing,
    /// Timing for the interference with other tasks.
    for_others: Timing,
}

impl StreamRequest {
    fn largest_packet(&self) -> u64 {
        self.max_packet_size.max(MIN_PACKET_BYTES).into()
    }

    /// Returns the maximum number of packets in a period, or in a second for
    /// [`StreamLoad::Capped`].
    fn packets(&self) -> u32 {
        match self.load {
            StreamLoad::Periodic { budget, .. } => max_packets(&budget),
            StreamLoad::Capped(rate) => u32::try_from(1_000_000_000 / rate.interval()).unwrap_or(u32::MAX),
            StreamLoad::Unbounded => u32::MAX,
        }
    }

    /// Returns the request with `packets` packets in each period or second; `None` for 0.
    fn with_packets(&self, packets: u32) -> Option<Self> {
        let packets = std::num::NonZeroU32::new(packets)?;
        let load = match self.load {
            StreamLoad::Periodic { budget, deadline, service } => {
                StreamLoad::Periodic { budget: Budget { packets: Some(packets.get()), ..budget }, deadline, service }
            }
            StreamLoad::Capped(rate) => StreamLoad::Capped(PacketRate::new(packets, rate.burst())),
            StreamLoad::Unbounded => return None,
        };
        Some(Self { load, ..*self })
    }
}

/// Returns the maximum number of packets in a period. If only bytes are bounded, all packets may be
/// as short as TCP permits.
fn max_packets(budget: &Budget) -> u32 {
    let shortest = budget.bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(MIN_PACKET_BYTES.into()));
    budget.packets.unwrap_or(u32::MAX).min(u32::try_from(shortest).unwrap_or(u32::MAX))
}

impl StreamResources {
    /// Creates the resources of a link of `link_bits_per_second`, without VLAN tags, with 256 MiB
    /// of memory for streams, and without dispatch tasks. Best effort keeps a fifth of the link and
    /// a tenth of each core.
    #[must_use]
    pub fn new(link_bits_per_second: u64, cost: ProcessingCost) -> Self {
        Self {
            link_bits_per_second,
            vlan_tags: 0,
            processing_cost: cost,
            max_total_memory: 256 << 20,
            best_effort_minimum: BestEffortMinimum { link_thousandths: 200, processor_thousandths: 100 },
            dispatch_tasks: BTreeMap::new(),
        }
    }

    /// Returns the task for a stream's protocol processing. Times that overflow are saturated.
    fn timing(&self, stream: &StreamRequest) -> Timing {
        match stream.load {
            StreamLoad::Periodic { budget, deadline, .. } => {
                let packets = u64::from(max_packets(&budget));
                let bytes = max_bytes(&budget, stream.largest_packet());
                let execution = self.processing_cost.per_period.saturating_add(self.processing(packets, bytes));
                Timing::new(execution, budget.period).with_deadline(deadline).with_blocking(stream.max_blocking)
            }
            StreamLoad::Capped(rate) => {
                let execution = self.processing(1, stream.largest_packet());
                Timing::new(execution, rate.interval()).with_jitter(rate.tolerance())
            }
            StreamLoad::Unbounded => Timing::new(Nanos::MAX, 1),
        }
    }

    fn core_task(&self, stream: &StreamRequest) -> CoreTask {
        let timing = self.timing(stream);
        let (mut own, mut for_others) = (timing, timing);
        let mut priority = RECEIVE_CONTEXT;
        if let StreamLoad::Periodic { service, .. } = stream.load {
            priority = u16::from(stream.priority);
            if service == BudgetServerKind::Deferrable {
                // The stream can use up its budget immediately before its packets arrive, so its
                // own response time includes that execution. For other tasks, the budgets of two
                // periods can follow each other at once, which counts as jitter (Strosnider,
                // Lehoczky and Sha, "The Deferrable Server Algorithm", IEEE Transactions on
                // Computers 44(1), 1995).
                own = timing.with_blocking(timing.blocking.saturating_add(timing.execution));
                for_others = timing.with_jitter(timing.period.saturating_sub(timing.execution));
            }
        }
        CoreTask { priority, task: AdmissionTask::Stream(stream.stream), own, for_others }
    }

    fn processing(&self, packets: u64, bytes: u64) -> Nanos {
        let of_bytes = bytes.div_ceil(1024).saturating_mul(self.processing_cost.per_kibibyte);
        packets.saturating_mul(self.processing_cost.per_packet).saturating_add(of_bytes)
    }

    /// Returns the bits per second that a stream occupies on the link, with framing, rounded up.
    fn bits_per_second(&self, stream: &StreamRequest) -> u64 {
        let largest = stream.largest_packet();
        let (packets, bytes, period) = match stream.load {
            StreamLoad::Periodic { budget, .. } => {
                // The last packet of a period may exceed the remaining bytes. The next period then
                // has fewer bytes, so the average is the budget.
                (u64::from(max_packets(&budget)), budget.bytes.unwrap_or(u64::MAX), budget.period)
            }
            StreamLoad::Capped(rate) => (1, largest, rate.interval()),
            StreamLoad::Unbounded => return u64::MAX,
        };
        let framing = ETHERNET_OVERHEAD_BYTES + 4 * u64::from(self.vlan_tags);
        // An upper bound: no packet is larger than `largest`, and the padding of a packet is at
        // most that of a packet of minimum size.
        let padding = packets.saturating_mul(MIN_ETHERNET_PAYLOAD_BYTES - u64::from(MIN_PACKET_BYTES));
        let padded = packets.saturating_mul(largest.max(MIN_ETHERNET_PAYLOAD_BYTES)).min(bytes.saturating_add(padding));
        let on_link = u128::from(padded) + u128::from(packets) * u128::from(framing);
        let bits = (on_link * 8 * 1_000_000_000).div_ceil(u128::from(period.max(1)));
        u64::try_from(bits).unwrap_or(u64::MAX)
    }
}

/// Returns the maximum number of bytes in a period. The last packet may exceed a bound in bytes.
fn max_bytes(budget: &Budget, largest_packet: u64) -> u64 {
    let whole = u64::from(max_packets(budget)).saturating_mul(largest_packet);
    let bounded = budget.bytes.map_or(u64::MAX, |bytes| bytes.saturating_add(largest_packet.saturating_sub(1)));
    whole.min(bounded)
}

#[cfg(test)]
#[path = "admission/tests.rs"]
mod tests;
