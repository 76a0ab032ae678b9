//! The processes of the benchmark `events`: channels and consumers.

use std::sync::Arc;
use std::time::Duration;

use corelane::rt::RtPolicies;
use corelane::{Any, Dispatch, Orb, PoolConfig, SystemException};
use corelane_services::events::rtec_event_comm::{Event, PushConsumer};
use corelane_services::events::{
    EventChannel, EventLane, EventStore, Gateway, MissPolicy, RECORD_FORMAT, Retention, cos_event_comm as cos,
    receive_lanes,
};
use corelane_services::store::FileStore;

use crate::Failure;
use crate::arrivals::ArrivalReporter;
use crate::orb::{direct_priorities, limits};
use crate::service::serve_lines;

/// The word for a channel without lanes or without gateway, and for consumers that report no
/// arrivals.
pub(crate) const NONE: &str = "-";
/// The word for a channel with the default reactions to a consumer that does not answer.
pub(crate) const USUAL: &str = "usual";
/// The word for a channel that never gives up on a consumer.
pub(crate) const PATIENT: &str = "patient";

/// A time-out far above the duration of a run.
const ENDLESS: Duration = Duration::from_secs(24 * 3_600);

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// Serves a channel until the input ends. `lanes` is [`NONE`] or a list of `RT_INFO:PRIORITY`
/// separated by commas; the channel also receives calls in these lanes. `patience` is [`USUAL`], or
/// [`PATIENT`] for a channel that never gives up on a consumer. `destination` is [`NONE`], or the
/// reference of a channel to which a gateway leads. The answer to any input line is the number of
/// queued event sets.
///
/// # Errors
/// The channel cannot start.
pub(crate) fn serve_channel(address: &str, lanes: &str, patience: &str, destination: &str) -> Result<(), Failure> {
    // The pool has the settings of the command `corelane events serve`.
    let pool = PoolConfig::default().name("events").dispatch(Dispatch::Reactive);
    let orb = Orb::builder()
        .pool(pool)
        .limits(limits())
        .real_time(direct_priorities())
        .listen(address)
        .build()
        .map_err(failed)?;
    let misses = match patience {
        USUAL => MissPolicy::default(),
        PATIENT => MissPolicy { send_timeout: ENDLESS, ..MissPolicy::default() },
        _ => return Err(Failure::new(format!("there is no patience `{patience}`"))),
    };
    let lanes = parse_lanes(lanes)?;
    let real_time =
        if lanes.is_empty() { RtPolicies::default() } else { receive_lanes(&orb, &lanes, None).map_err(failed)? };
    let builder = EventChannel::builder().lanes(lanes).real_time(real_time).miss_policy(misses);
    let builder = match destination {
        NONE => builder,
        reference => {
            let to = orb.string_to_object(reference).map_err(failed)?.ok_or_else(|| failed("the reference is nil"))?;
            builder.gateway(&to, Gateway::builder())
        }
    };
    let channel = builder.serve(&orb).map_err(failed)?;
    println!("ready {} {}", channel.reference(), channel.cos_reference());
    serve_lines(|_| {
        let queued: u64 = channel.statistics().total().queued;
        Some(queued.to_string())
    })
    .map_err(failed)
}

/// Serves a durable channel until the input ends.
///
/// # Errors
/// The channel cannot start.
pub(crate) fn serve_durable_channel(address: &str, file: &str) -> Result<(), Failure> {
    // The pool has the settings of the command `corelane events serve --store`.
    let pool = PoolConfig::default().name("events").dispatch(Dispatch::ThreadPerConnection { max_threads: 256 });
    let orb = Orb::builder().pool(pool).limits(limits()).listen(address).build().map_err(failed)?;
    orb.root_poa().manager().activate().map_err(failed)?;
    let store = EventStore::open(FileStore::open(file, RECORD_FORMAT).map_err(failed)?).map_err(failed)?;
    let channel = EventChannel::builder().durable(&store, Retention::default()).serve(&orb).map_err(failed)?;
    println!("ready {}", channel.cos_reference());
    serve_lines(|_| None).map_err(failed)
}

fn parse_lanes(text: &str) -> Result<Vec<EventLane>, Failure> {
    if text == NONE {
        return Ok(Vec::new());
    }
    let lane = |word: &str| {
        let (rt_info, priority) = word.split_once(':')?;
        Some(EventLane::new(rt_info.parse().ok()?).priority(priority.parse().ok()?))
    };
    let lanes = text.split(',').map(lane).collect::<Option<Vec<EventLane>>>();
    lanes.ok_or_else(|| Failure::new(format!("`{text}` is not a list of lanes")))
}

/// The interface by which consumers and suppliers use a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// TAO's Real-time Event Service.
    Rtec,
    /// CORBA's Event Service.
    Cos,
}

impl Service {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::Rtec => "rtec",
            Service::Cos => "cos",
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self, Failure> {
        let known = [Service::Rtec, Service::Cos].into_iter().find(|service| service.name() == name);
        known.ok_or_else(|| Failure::new(format!("there is no event service `{name}`")))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerProgram<'a> {
    pub(crate) address: &'a str,
    pub(crate) service: Service,
    pub(crate) count: usize,
    /// The name of the listener to which the process reports, once all consumers have an event; or
    /// [`NONE`].
    pub(crate) arrivals: &'a str,
    /// The time for which each consumer sleeps in each push.
    pub(crate) delay: Duration,
}

struct Consumer {
    reporter: Option<Arc<ArrivalReporter>>,
    delay: Duration,
}

impl Consumer {
    #[inline]
    fn arrived(&self) {
        if let Some(reporter) = &self.reporter {
            reporter.arrived();
        }
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
    }
}

impl PushConsumer for Consumer {
    fn push(&self, _: &[Event]) -> Result<(), SystemException> {
        self.arrived();
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

impl cos::PushConsumer for Consumer {
    fn push(&self, _: &Any) -> Result<(), cos::push_consumer::PushError> {
        self.arrived();
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

impl ConsumerProgram<'_> {
    /// Serves the consumers until the input ends. Each connection has a thread.
    ///
    /// # Errors
    /// The consumers cannot start.
    pub(crate) fn serve(&self) -> Result<(), Failure> {
        let reporter = match self.arrivals {
            NONE => None,
            name => Some(Arc::new(ArrivalReporter::connect(name, self.count)?)),
        };
        let pool =
            PoolConfig::default().name("consumers").dispatch(Dispatch::ThreadPerConnection { max_threads: 1_000 });
        let orb = Orb::builder().pool(pool).limits(limits()).listen(self.address).build().map_err(failed)?;
        let root = orb.root_poa();
        let mut references = Vec::with_capacity(self.count);
        for _ in 0..self.count {
            let consumer = Consumer { reporter: reporter.clone(), delay: self.delay };
            let servant = match self.service {
                Service::Rtec => <Consumer as PushConsumer>::servant(consumer),
                Service::Cos => <Consumer as cos::PushConsumer>::servant(consumer),
            };
            references.push(root.activate(&servant).map_err(failed)?.to_string());
        }
        root.manager().activate().map_err(failed)?;
        println!("ready {}", references.join(" "));
        serve_lines(|_| None).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_the_programs_are_parsed() {
        assert_eq!(parse_lanes(NONE).unwrap(), []);
        let lanes = parse_lanes("20:98,10:1").unwrap();
        assert_eq!(lanes, [EventLane::new(20).priority(98), EventLane::new(10).priority(1)]);
        for wrong in ["", "20", "20:x", "20:1,"] {
            assert!(parse_lanes(wrong).is_err(), "{wrong}");
        }
        for service in [Service::Rtec, Service::Cos] {
            assert_eq!(Service::from_name(service.name()).unwrap(), service);
        }
        assert!(Service::from_name("notification").is_err());
        assert!(serve_channel("tcp:127.0.0.1:0", NONE, "hasty", NONE).is_err());
    }
}
