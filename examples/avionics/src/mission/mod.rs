//! The mission computer on an event channel.
//!
//! The interval timeouts of the channel tell the sensors, at 20, 10, 5 and 1 Hz, that a sample is
//! due. The sensors push their samples, and the computer's consumers wait for the samples that they
//! need.

mod channel;
mod consumers;
mod modes;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use corelane::{Completion, ObjectRef, Orb, SystemException, SystemExceptionKind};
use corelane_services::cores::protocol::TasksRef;
use corelane_services::events::MissPolicy;
use corelane_services::events::cos_event_comm::PushConsumerRef as ValueConsumerRef;
use corelane_services::events::rtec_event_comm::PushConsumerRef;
use corelane_sys::lock::{LockScope, Mutex};

use crate::Result;
use crate::avionics::event_computer::EnterError;
use crate::avionics::{ChannelCounts, EventComputer, EventComputerRef, Mode, RecorderRef};
use crate::clients::{Role, client};
use crate::computer::Computer;
use crate::meter::Meter;

pub(crate) use self::channel::MISSES;
use self::channel::MissionChannel;
pub(crate) use self::consumers::push;
use self::modes::Modes;
use self::plan::WORK;

/// The mission computer on its channel, until it is dropped.
pub(crate) struct Mission {
    pub(crate) reference: EventComputerRef,
    #[cfg(test)]
    servant: Arc<Servant>,
    meters: Vec<Arc<Meter>>,
}

impl Mission {
    /// Serves the channel, connects the computer's consumers, and enters the mode `cruise`.
    /// `misses` is the reaction to consumers that do not answer. `tasks` is the admission object,
    /// and the object that the tasks call.
    pub(crate) fn serve(
        orb: &Orb,
        computer: &Arc<Computer>,
        tasks: Option<(TasksRef, ObjectRef)>,
        recorder: &RecorderRef,
        misses: MissPolicy,
    ) -> Result<Self> {
        let channel = MissionChannel::serve(orb, misses)?;
        let mut meters = Vec::new();
        consumers::connect(orb, &channel, computer, &mut |at| {
            let meter = Arc::new(Meter::start(WORK[at].name, Some(WORK[at].deadline), recorder.clone())?);
            meters.push(Arc::clone(&meter));
            Ok(meter)
        })?;
        let modes = Mutex::new("modes", LockScope::Orb, Modes::new(tasks));
        let servant = Arc::new(Servant { channel, modes });
        servant.enter(Mode::Cruise).map_err(|error| format!("the mode cruise is refused: {error:?}"))?;
        let reference = orb.root_poa().activate(&Servant::servant_of(Arc::clone(&servant)))?;
        Ok(Mission {
            reference: EventComputerRef::from_object(reference),
            #[cfg(test)]
            servant,
            meters,
        })
    }

    /// Sends the last measurements of the consumers.
    pub(crate) fn finish(self) -> Result<()> {
        self.meters.iter().try_for_each(|meter| meter.finish())
    }
}

struct Servant {
    channel: MissionChannel,
    modes: Mutex<Modes>,
}

impl Servant {
    fn attach_client(&self, name: &str, consumer: &ObjectRef) -> Result<Option<ObjectRef>> {
        let client = client(name)?;
        if client.role == Role::Display {
            self.channel.connect_display(name, &ValueConsumerRef::from_object(consumer.clone()))?;
            return Ok(None);
        }
        let event_type = self.channel.event_type(name).ok_or("the client is no sensor")?;
        let supplier = self.channel.supplier(event_type, client.rate)?;
        let timeouts = format!("interval {}ms", 1_000 / client.rate);
        self.channel.connect(name, client.rate, &timeouts, &PushConsumerRef::from_object(consumer.clone()))?;
        Ok(Some(supplier.as_object().clone()))
    }
}

impl EventComputer for Servant {
    fn attach(&self, name: &str, consumer: Option<&ObjectRef>) -> Result<Option<ObjectRef>, SystemException> {
        let refusal =
            |why: String| SystemException::new(SystemExceptionKind::BadParam, 0, Completion::No).with_message(why);
        let consumer = consumer.ok_or_else(|| refusal("the consumer is nil".into()))?;
        self.attach_client(name, consumer).map_err(|error| refusal(error.to_string()))
    }

    fn enter(&self, next: Mode) -> Result<(), EnterError> {
        let mut modes = self.modes.lock();
        modes.enter(next)?;
        for work in &WORK {
            self.channel.set_active(work.name, modes.does(work))?;
        }
        Ok(())
    }

    fn counts(&self) -> Result<ChannelCounts, SystemException> {
        Ok(self.channel.counts())
    }
}
