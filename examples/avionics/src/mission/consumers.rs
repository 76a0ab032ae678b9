//! The consumers of the channel in the mission computer. They do the work that clients call in the
//! form of the demo without a channel ([`Form::Direct`](crate::Form::Direct)).

use std::sync::Arc;

use corelane::{Any, Orb, SystemException};
use corelane_services::events::EventType;
use corelane_services::events::RtecEventData;
use corelane_services::events::rtec_event_channel_admin::ProxyPushConsumerRef;
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumer, PushConsumerRef};
use corelane_sys::clock::Monotonic;

use super::channel::MissionChannel;
use super::plan::{INERTIAL, NAVIGATION, POSITION, RADAR, THREATS, WORK};
use crate::Result;
use crate::avionics::{Attitude, Contacts, Engines, MissionComputer, Position, SelfTest};
use crate::computer::Computer;
use crate::meter::Meter;

/// The unit of the times in events, in nanoseconds.
const TIME_UNIT: u64 = 100;

/// The work that a set of events starts.
type Job = Box<dyn Fn(&EventSet<'_>) -> Result<(), SystemException> + Send + Sync>;

/// The events that a consumer gets at a time.
struct EventSet<'e>(&'e [Event]);

impl EventSet<'_> {
    /// Returns the time at which the last of the samples was due, by which the set is complete.
    fn due(&self) -> u64 {
        self.0.iter().map(|event| event.header.creation_time).max().unwrap_or(0)
    }

    /// Returns the value of the event with this type; null if the set has none.
    fn value(&self, event_type: EventType) -> Any {
        let found = self.0.iter().find(|event| event.header.r#type == event_type.0);
        found.map_or_else(Any::null, |event| event.data.any_value.clone())
    }
}

struct Consumer {
    job: Job,
    meter: Arc<Meter>,
}

impl PushConsumer for Consumer {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        let set = EventSet(data);
        let done = (self.job)(&set);
        self.meter.note(Monotonic::from_nanos(set.due() * TIME_UNIT), done.clone());
        done
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

/// Connects a consumer to the channel for each work of the plan. `meter` makes the meter of the
/// work with this index in [`WORK`].
pub(super) fn connect(
    orb: &Orb,
    channel: &MissionChannel,
    computer: &Arc<Computer>,
    meter: &mut dyn FnMut(usize) -> Result<Arc<Meter>>,
) -> Result<()> {
    for (at, work) in WORK.iter().enumerate() {
        let consumer = Consumer { job: job(work.name, channel, Arc::clone(computer))?, meter: meter(at)? };
        let consumer = orb.root_poa().activate(&PushConsumer::servant(consumer))?;
        channel.connect(work.name, work.group, work.filter, &PushConsumerRef::from_object(consumer))?;
    }
    Ok(())
}

fn job(name: &str, channel: &MissionChannel, computer: Arc<Computer>) -> Result<Job> {
    Ok(match name {
        "navigation" => {
            let output = channel.supplier(NAVIGATION, 20)?;
            Box::new(move |set| {
                computer.locate(&set.value(POSITION).extract::<Position>()?)?;
                let steering = computer.navigate(&set.value(INERTIAL).extract::<Attitude>()?)?;
                push(&output, NAVIGATION, set.due(), Any::new(&steering)?)
            })
        }
        "threats" => {
            let output = channel.supplier(THREATS, 10)?;
            Box::new(move |set| {
                let threats = computer.assess(&set.value(RADAR).extract::<Contacts>()?)?;
                push(&output, THREATS, set.due(), Any::new(&threats)?)
            })
        }
        "endurance" => {
            Box::new(move |set| computer.endurance(&set.0[0].data.any_value.extract::<Engines>()?).map(drop))
        }
        "health" => Box::new(move |set| computer.check(&set.0[0].data.any_value.extract::<SelfTest>()?).map(drop)),
        "hud" => Box::new(move |_| computer.show().map(drop)),
        "tracking" => Box::new(move |_| computer.aim().map(drop)),
        _ => return Err(format!("there is no work {name}").into()),
    })
}

/// Pushes an event that was due at `due`, in the unit of times in events.
pub(crate) fn push(
    output: &ProxyPushConsumerRef,
    event_type: EventType,
    due: u64,
    value: Any,
) -> Result<(), SystemException> {
    let header = EventHeader { r#type: event_type.0, creation_time: due, ..EventHeader::default() };
    let data = RtecEventData { any_value: value, ..RtecEventData::default() };
    output.push(&[Event { header, data }])
}
