//! The streams of a transport as requests for admission.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use corelane_net::{IoClass, IoProperties};
use corelane_sched::analysis::sensitivity::find_largest;
use corelane_sched::task::Nanos;
use corelane_sys::lock::{LockScope, Mutex};

use crate::admission::{
    StreamAdmissionState, StreamLoad, StreamRefusal, StreamRequest, StreamResources, ViolatedBound,
};
use crate::budget::{Budget, BudgetServerKind};
use crate::config::RioConfig;
use crate::rate::PacketRate;

/// Bytes of headers in each packet: IPv6 40, TCP 20, timestamps 12 (RFC 7323).
const HEADER_BYTES: u32 = 72;

/// Admission of the streams of a transport ([`RioConfig::admission`]).
///
/// A stream with the service class [`IoClass::Guaranteed`] or [`IoClass::GuaranteedPackets`] is a
/// task: its period and its deadline are the period of the budget, its execution time is the time
/// for the packets of a period. Each packet of a budget in packets counts as full.
///
/// The packets of a stream with [`IoClass::LowLatency`] interrupt all tasks of one core:
/// [`RioConfig::receive_core`] or, if it is `None`, the first core of the stream. A stream with
/// [`IoClass::Priority`] has no bound and is not admitted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamAdmission {
    /// The resources that the streams share.
    pub resources: StreamResources,
    /// Number of bytes of a stream that admission assumes in each packet. Peers may send shorter
    /// packets, which cost more than admission counts. Default: 1,428, full segments of an
    /// interface with an MTU of 1,500.
    pub packet_payload: u32,
    /// Maximum time in nanoseconds for which the receive context keeps the kernel thread of a
    /// stream from running. Default: 0.
    pub blocking: Nanos,
    /// If true, a stream that does not fit is opened nevertheless, without a place among the
    /// admitted streams, and [`StreamStatus::refusal`](crate::StreamStatus::refusal) has the
    /// reason. Default: `false`.
    pub is_advisory: bool,
}

impl StreamAdmission {
    /// Creates the admission of streams that share `resources`.
    #[must_use]
    pub fn new(resources: StreamResources) -> Self {
        Self { resources, packet_payload: 1_428, blocking: 0, is_advisory: false }
    }

    /// Sets [`packet_payload`](field@Self::packet_payload). 0 counts as 1.
    #[must_use]
    pub fn packet_payload(mut self, bytes: u32) -> Self {
        self.packet_payload = bytes;
        self
    }

    /// Sets [`blocking`](field@Self::blocking).
    #[must_use]
    pub fn blocking(mut self, time: Nanos) -> Self {
        self.blocking = time;
        self
    }

    /// Sets [`is_advisory`](field@Self::is_advisory).
    #[must_use]
    pub fn advisory(mut self, is_advisory: bool) -> Self {
        self.is_advisory = is_advisory;
        self
    }
}

/// Refusal of a stream of a transport. The error of kind `QuotaExceeded` that
/// [`Transport`](corelane_net::Transport) returns contains the refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamNotAdmitted {
    /// Number of the refused stream.
    pub stream: u32,
    /// The bound that the stream would violate.
    pub bound: ViolatedBound,
    /// The largest number of bytes in each period with which the stream would be admitted now.
    /// `None` if no number would be admitted, or if the stream has no budget in bytes.
    pub admissible_bytes: Option<u32>,
    /// As `admissible_bytes`, for a stream with a budget in packets or a cap in packets.
    pub admissible_packets: Option<u32>,
}

impl fmt::Display for StreamNotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} is not admitted: {}; ", self.stream, self.bound)?;
        match (self.admissible_bytes, self.admissible_packets) {
            (Some(bytes), _) => write!(f, "{bytes} bytes in each period would fit"),
            (None, Some(packets)) => write!(f, "{packets} packets in each period would fit"),
            (None, None) => f.write_str("no budget would fit"),
        }
    }
}

impl std::error::Error for StreamNotAdmitted {}

/// The admitted streams of a transport.
#[derive(Debug)]
pub(crate) struct AdmittedStreams {
    config: StreamAdmission,
    state: Arc<Mutex<StreamAdmissionState>>,
}

/// The place of an admitted stream. Dropping the value frees the place.
#[derive(Debug)]
pub(crate) struct AdmittedStream {
    stream: u32,
    state: Arc<Mutex<StreamAdmissionState>>,
}

impl Drop for AdmittedStream {
    fn drop(&mut self) {
        self.state.lock().remove(self.stream);
    }
}

impl AdmittedStreams {
    pub(crate) fn new(config: StreamAdmission) -> Self {
        let admission = StreamAdmissionState::new(config.resources.clone());
        Self { config, state: Arc::new(Mutex::new("admitted streams", LockScope::Orb, admission)) }
    }

    pub(crate) fn is_advisory(&self) -> bool {
        self.config.is_advisory
    }

    pub(crate) fn admit(
        &self,
        stream: u32,
        io: &IoProperties,
        transport: &RioConfig,
    ) -> Result<AdmittedStream, StreamNotAdmitted> {
        let mut state = self.state.lock();
        match state.admit(self.request(stream, io, transport)) {
            Ok(()) => Ok(AdmittedStream { stream, state: Arc::clone(&self.state) }),
            Err(StreamRefusal { violated_bound: bound, .. }) => {
                let fits =
                    |class| state.check(&self.request(stream, &IoProperties { class, ..*io }, transport)).is_ok();
                let (mut admissible_bytes, mut admissible_packets) = (None, None);
                match io.class {
                    IoClass::Guaranteed { bytes, period } => {
                        admissible_bytes = largest_fitting(bytes, |bytes| fits(IoClass::Guaranteed { bytes, period }));
                    }
                    IoClass::GuaranteedPackets { packets, period } => {
                        let fits = |packets| fits(IoClass::GuaranteedPackets { packets, period });
                        admissible_packets = largest_fitting(packets, fits);
                    }
                    IoClass::LowLatency { packets, period } => {
                        let fits = |packets| fits(IoClass::LowLatency { packets, period });
                        admissible_packets = largest_fitting(packets, fits);
                    }
                    _ => {}
                }
                Err(StreamNotAdmitted { stream, bound, admissible_bytes, admissible_packets })
            }
        }
    }

    fn request(&self, stream: u32, io: &IoProperties, transport: &RioConfig) -> StreamRequest {
        let payload = self.config.packet_payload.max(1);
        let load = match io.class {
            IoClass::Guaranteed { bytes, period } => {
                let period = Nanos::try_from(period.as_nanos()).unwrap_or(Nanos::MAX);
                let packets = bytes.div_ceil(payload);
                let with_headers = u64::from(bytes) + u64::from(packets) * u64::from(HEADER_BYTES);
                let budget = Budget { period, packets: Some(packets), bytes: Some(with_headers) };
                StreamLoad::Periodic { budget, deadline: period, service: BudgetServerKind::Deferrable }
            }
            IoClass::GuaranteedPackets { packets, period } => {
                let period = Nanos::try_from(period.as_nanos()).unwrap_or(Nanos::MAX);
                let budget = Budget::of_packets(packets, period);
                StreamLoad::Periodic { budget, deadline: period, service: BudgetServerKind::Deferrable }
            }
            IoClass::LowLatency { packets, period } => {
                let period = Nanos::try_from(period.as_nanos()).unwrap_or(Nanos::MAX);
                // Each receive queue has a cap of its own, so the stream may use all caps together.
                let packets = packets.max(1).saturating_mul(transport.receive_queue_count());
                StreamLoad::Capped(PacketRate::of_period(NonZeroU32::MIN.saturating_add(packets - 1), period))
            }
            _ => StreamLoad::Unbounded,
        };
        let receive_core = transport.receive_core.and_then(|core| u32::try_from(core).ok());
        let receive_core = receive_core.filter(|_| matches!(load, StreamLoad::Capped(_)));
        StreamRequest {
            stream,
            core: receive_core.unwrap_or_else(|| transport.core_of(io)),
            // Threads without a fixed priority run below all others.
            priority: io.native_priority.unwrap_or(0),
            load,
            max_packet_size: payload.saturating_add(HEADER_BYTES),
            max_blocking: self.config.blocking,
            max_memory: transport.memory_bound(io.class).total_bytes(),
        }
    }
}

/// Returns the largest amount up to `wanted` that fits. The search by halves needs that a larger
/// amount never removes a violation.
fn largest_fitting(wanted: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
    let is_admitted = |amount: u64| u32::try_from(amount).is_ok_and(&fits);
    find_largest(1, wanted.max(1).into(), is_admitted).and_then(|amount| u32::try_from(amount).ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::admission::ProcessingCost;

    const COST: ProcessingCost = ProcessingCost { per_period: 10_000, per_packet: 5_000, per_kibibyte: 500 };

    fn guaranteed(bytes: u32, millis: u64, priority: u8) -> IoProperties {
        let class = IoClass::Guaranteed { bytes, period: Duration::from_millis(millis) };
        IoProperties { class, native_priority: Some(priority), ..IoProperties::default() }
    }

    #[test]
    fn stream_without_a_bound_is_refused() {
        let admitted = AdmittedStreams::new(StreamAdmission::new(StreamResources::new(1_000_000_000, COST)));
        let io = IoProperties { class: IoClass::Priority, ..IoProperties::default() };
        let refusal = admitted.admit(1, &io, &RioConfig::default()).unwrap_err();
        let expected = StreamNotAdmitted {
            stream: 1,
            bound: ViolatedBound::UnboundedLoad,
            admissible_bytes: None,
            admissible_packets: None,
        };
        assert_eq!(refusal, expected);
        assert_eq!(
            refusal.to_string(),
            "stream 1 is not admitted: the class of the stream has no bound on its load; no budget would \
             fit"
        );
    }

    #[test]
    fn refused_memory_names_the_budget_whose_buffers_fit() {
        let transport = RioConfig::default();
        let io = guaranteed(400_000, 10, 5);
        let needed = transport.memory_bound(io.class).total_bytes();
        let resources = StreamResources { max_total_memory: needed - 1, ..StreamResources::new(10_000_000_000, COST) };
        let admitted = AdmittedStreams::new(StreamAdmission::new(resources));
        let refusal = admitted.admit(1, &io, &transport).unwrap_err();
        assert_eq!(refusal.bound, ViolatedBound::Memory { needed, available: needed - 1 });
        // The available memory is one byte too small. The receive buffer has four bytes for each
        // byte of the budget, so a budget with one byte less fits.
        assert_eq!(refusal.admissible_bytes, Some(399_999));
    }

    /// The protocol thread of a stream with a budget in packets is a task with the time of all its
    /// packets.
    #[test]
    fn budget_in_packets_is_charged_with_full_packets() {
        let admitted = AdmittedStreams::new(StreamAdmission::new(StreamResources::new(10_000_000_000, COST)));
        let io = |packets| {
            let class = IoClass::GuaranteedPackets { packets, period: Duration::from_millis(10) };
            IoProperties { class, native_priority: Some(5), ..IoProperties::default() }
        };
        let transport = RioConfig::default().max_connections(1);
        // The budgets of two periods in a row must fit into 10 ms. A packet costs 5 us, and 0.5 us
        // for each KiB of its at most 1,500 bytes.
        let refusal = admitted.admit(1, &io(2_000), &transport).unwrap_err();
        let most = refusal.admissible_packets.unwrap();
        assert!((800..=870).contains(&most), "{refusal}");
        assert!(refusal.to_string().ends_with(&format!("; {most} packets in each period would fit")), "{refusal}");
        assert!(admitted.admit(1, &io(most + 1), &transport).is_err());
        let _first = admitted.admit(1, &io(most), &transport).unwrap();
        assert_eq!(admitted.admit(2, &io(most), &transport).unwrap_err().admissible_packets, None);
    }

    #[test]
    fn low_latency_packets_interrupt_the_streams_of_the_receive_core() {
        let admitted = AdmittedStreams::new(StreamAdmission::new(StreamResources::new(10_000_000_000, COST)));
        let low_latency = |packets| {
            let class = IoClass::LowLatency { packets, period: Duration::from_millis(10) };
            IoProperties { class, native_priority: Some(5), ..IoProperties::default() }
        };
        let receive_core = RioConfig::default().receive_core(Some(1));
        let here = RioConfig::default();
        // A packet costs 6 us, and 900 of 1,000 thousandths of the core are free: 1,500 packets.
        let refusal = admitted.admit(1, &low_latency(2_000), &here).unwrap_err();
        assert!(matches!(refusal.bound, ViolatedBound::Processor { core: 0, .. }), "{refusal}");
        assert_eq!((refusal.admissible_bytes, refusal.admissible_packets), (None, Some(1_500)));
        let first = admitted.admit(1, &low_latency(1_400), &here).unwrap();
        let refusal = admitted.admit(2, &guaranteed(200_000, 10, 90), &here).unwrap_err();
        assert!(matches!(refusal.bound, ViolatedBound::ResponseTime { .. }), "{refusal}");
        admitted.admit(3, &low_latency(1_400), &here).unwrap_err();
        let _third = admitted.admit(3, &low_latency(1_400), &receive_core).unwrap();
        drop(first);
        let _second = admitted.admit(2, &guaranteed(200_000, 10, 90), &here).unwrap();
    }

    #[test]
    fn ended_stream_makes_room() {
        let admitted = AdmittedStreams::new(StreamAdmission::new(StreamResources::new(100_000_000, COST)));
        let admit = |stream| admitted.admit(stream, &guaranteed(70_000, 10, 5), &RioConfig::default());
        let first = admit(1).unwrap();
        assert!(matches!(admit(2).unwrap_err().bound, ViolatedBound::Link { .. }));
        drop(first);
        admit(2).unwrap();
    }

    proptest! {
        #[test]
        fn offered_budget_fits_and_a_larger_one_does_not(
            streams in prop::collection::vec((1_u32..2_000_000, 1_u64..50, 1_u8..99), 1..8),
            payload in 0_u32..9_000,
        ) {
            let admission = StreamAdmission::new(StreamResources::new(1_000_000_000, COST)).packet_payload(payload);
            let admitted = AdmittedStreams::new(admission);
            let transport = RioConfig::default();
            let mut open = Vec::new();
            for (number, (bytes, millis, priority)) in (1..).zip(streams) {
                let Err(refusal) =
                    admitted.admit(number, &guaranteed(bytes, millis, priority), &transport).map(|one| open.push(one))
                else {
                    continue;
                };
                if let Some(bytes) = refusal.admissible_bytes {
                    let more = admitted.admit(number, &guaranteed(bytes + 1, millis, priority), &transport);
                    prop_assert!(more.is_err());
                    open.push(admitted.admit(number, &guaranteed(bytes, millis, priority), &transport).unwrap());
                }
            }
        }
    }
}
