//! Sensors and the display, as processes on the event channel. They end with their standard input.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::{Any, Dispatch, ObjectRef, Orb, PoolConfig, Servant, SystemException};
use corelane_services::events::EventType;
use corelane_services::events::cos_event_comm::{self, push_consumer::PushError};
use corelane_services::events::rtec_event_channel_admin::ProxyPushConsumerRef;
use corelane_services::events::rtec_event_comm::{Event, PushConsumer};

use crate::avionics::EventComputerRef;
use crate::clients::{Client, Role, attitude, contacts, engines, position, self_test};
use crate::mission::{self, plan};
use crate::{Result, priority};

/// Time for which the display stalls with each value that it gets.
const STALL: Duration = Duration::from_millis(700);

/// Runs a sensor or the display, whose ORB listens at this address, until the standard input ends.
pub(crate) fn run(client: &Client, computer: &str, address: &str) -> Result<()> {
    // The threads of an ORB inherit the scheduling class of the thread that creates it, so the
    // class is set first.
    priority::raise(client.priority);
    let pool = PoolConfig::default().dispatch(Dispatch::ThreadPerConnection { max_threads: 8 });
    let orb = Orb::builder().pool(pool).listen(format!("tcp:{address}:0")).build()?;
    orb.root_poa().manager().activate()?;
    let computer: EventComputerRef = orb.string_to_reference(computer)?;
    let mut sensor = None;
    if client.role == Role::Display {
        let display = activate(&orb, &cos_event_comm::PushConsumer::servant(Display))?;
        computer.attach(client.name, Some(&display))?;
    } else {
        let event_type = plan::event_names().event_type(client.name).ok_or("the client is no sensor")?;
        let sensor = sensor.insert(Arc::new(Sensor::new(event_type)));
        let consumer = activate(&orb, &PushConsumer::servant_of(Arc::clone(sensor)))?;
        let output = computer.attach(client.name, Some(&consumer))?.ok_or("the computer takes no samples")?;
        let _ = sensor.output.set(ProxyPushConsumerRef::from_object(output));
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    sensor.map_or(Ok(()), |sensor| sensor.outcome())
}

fn activate(orb: &Orb, servant: &Servant) -> Result<ObjectRef> {
    Ok(orb.root_poa().activate(servant)?)
}

struct Sensor {
    event_type: EventType,
    samples: AtomicU32,
    output: OnceLock<ProxyPushConsumerRef>,
    failures: AtomicU32,
    first_failure: OnceLock<SystemException>,
}

impl Sensor {
    fn new(event_type: EventType) -> Self {
        Sensor {
            event_type,
            samples: AtomicU32::new(0),
            output: OnceLock::new(),
            failures: AtomicU32::new(0),
            first_failure: OnceLock::new(),
        }
    }

    /// Returns an error if a push of a sample has failed. The channel gets no answer to the
    /// timeouts that it pushes, so it does not learn of the failure, and the process reports it.
    fn outcome(&self) -> Result<()> {
        match self.first_failure.get() {
            None => Ok(()),
            Some(first) => {
                let failures = self.failures.load(Ordering::Relaxed);
                Err(format!("{failures} pushes of samples failed, the first with {first}").into())
            }
        }
    }

    fn push_sample(&self, output: &ProxyPushConsumerRef, due: u64) -> Result<(), SystemException> {
        let pushed = self.sample().and_then(|sample| mission::push(output, self.event_type, due, sample));
        pushed.inspect_err(|failure| {
            self.failures.fetch_add(1, Ordering::Relaxed);
            let _ = self.first_failure.set(failure.clone());
        })
    }

    fn sample(&self) -> Result<Any, SystemException> {
        let n = self.samples.fetch_add(1, Ordering::Relaxed);
        match self.event_type {
            plan::INERTIAL => Any::new(&attitude(n)),
            plan::POSITION => Any::new(&position(n)),
            plan::RADAR => Any::new(&contacts(n)),
            plan::ENGINES => Any::new(&engines(n)),
            _ => Any::new(&self_test()),
        }
    }
}

impl PushConsumer for Sensor {
    /// Gets the timeouts of the sensor's rate group, and pushes a sample for each.
    fn push(&self, timeouts: &[Event]) -> Result<(), SystemException> {
        // The first timeout comes one period after the sensor has connected, so `output` is set by
        // then.
        let Some(output) = self.output.get() else { return Ok(()) };
        for timeout in timeouts {
            self.push_sample(output, timeout.header.creation_time)?;
        }
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

/// A display that stalls with each value.
struct Display;

impl cos_event_comm::PushConsumer for Display {
    fn push(&self, _value: &Any) -> Result<(), PushError> {
        std::thread::sleep(STALL);
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_push_of_a_sensor_fails_its_process() {
        let orb = Orb::new().unwrap();
        let sensor = Sensor::new(plan::ENGINES);
        sensor.push(&[Event::default()]).unwrap();
        sensor.outcome().unwrap();
        // No program listens on this port.
        let nowhere: ObjectRef = orb.string_to_reference("corbaloc::127.0.0.1:1/none").unwrap();
        sensor.output.set(ProxyPushConsumerRef::from_object(nowhere)).unwrap();
        (0..2).for_each(|_| drop(sensor.push(&[Event::default()]).unwrap_err()));
        let said = sensor.outcome().unwrap_err().to_string();
        assert!(said.starts_with("2 pushes of samples failed, the first with "), "{said}");
    }
}
