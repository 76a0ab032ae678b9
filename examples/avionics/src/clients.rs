//! The clients: their calls, rates and deadlines.

use std::time::Duration;

use corelane::{ObjectRef, Orb, SystemException};
use corelane_services::cores::AdmittedTask;
use corelane_services::cores::protocol::TasksRef;

use crate::avionics::{Attitude, Contact, Engines, MapStoreRef, MissionComputerRef, Position, SelfTest};
use crate::{Result, admission, meter};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// The operation that the client calls if the clients call the computer
    /// ([`Form::Direct`](crate::Form::Direct)).
    pub(crate) task: &'static str,
    /// Calls, or samples of a sensor, per second.
    pub(crate) rate: u32,
    /// Maximum time from the instant at which a call is due to its result; `None` for no maximum.
    pub(crate) deadline: Option<Duration>,
    /// Longest processor time of a call at the server; `None` for a client without a task.
    pub(crate) execution: Option<Duration>,
    /// Fixed priority; `None` for a client without a deadline.
    pub(crate) priority: Option<u8>,
}

/// The part of a client in the demo with an event channel ([`Form::Events`](crate::Form::Events)).
/// In the other form of the demo, every client is a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Pushes samples to the channel.
    Sensor,
    /// Gets the values of all events.
    Display,
    /// Calls the server.
    Caller,
}

/// The clients that use Corelane.
#[rustfmt::skip]
pub(crate) const CLIENTS: [Client; 8] = [
    timed("inertial", Role::Sensor, "navigate", 20, 5, 1, 30),
    timed("position", Role::Sensor, "locate", 20, 5, 1, 30),
    timed("radar", Role::Sensor, "assess 32 contacts", 10, 10, 2, 20),
    timed("engines", Role::Sensor, "endurance", 5, 20, 1, 10),
    timed("selftest", Role::Sensor, "check", 1, 100, 5, 5),
    timed("steering", Role::Caller, "steer", 20, 5, 1, 30),
    best_effort("display", Role::Display, "show", 25),
    best_effort("bulk", Role::Caller, "store 256 KiB", 40),
];

/// Returns a client with a deadline and an execution time in milliseconds.
const fn timed(
    name: &'static str,
    role: Role,
    task: &'static str,
    rate: u32,
    deadline: u64,
    execution: u64,
    priority: u8,
) -> Client {
    let (deadline, execution) = (Some(Duration::from_millis(deadline)), Some(Duration::from_millis(execution)));
    Client { name, role, task, rate, deadline, execution, priority: Some(priority) }
}

const fn best_effort(name: &'static str, role: Role, task: &'static str, rate: u32) -> Client {
    Client { name, role, task, rate, deadline: None, execution: None, priority: None }
}

/// Returns the client with this name.
pub(crate) fn client(name: &str) -> Result<&'static Client> {
    Ok(CLIENTS.iter().find(|client| client.name == name).ok_or("there is no such client")?)
}

/// Makes the calls of a client. `tasks` is the admission object, or empty if there is none.
pub(crate) fn run(client: &Client, target: &str, tasks: &str, recorder: &str, length: Duration) -> Result<()> {
    let orb = Orb::new()?;
    let mut target: ObjectRef = orb.string_to_reference(target)?;
    let mut admitted = None;
    if let (Some(execution), Some(deadline), false) = (client.execution, client.deadline, tasks.is_empty()) {
        let task = admission::task(client.name, execution, client.rate, deadline);
        let tasks: TasksRef = orb.string_to_reference(tasks)?;
        let task = AdmittedTask::admit(&tasks, &target, &task)
            .map_err(|error| format!("the server does not admit the task: {error:?}"))?;
        // Calls of this reference run as jobs of the task, until the task is dropped.
        target = task.reference().clone();
        admitted = Some(task);
    }
    target.validate_connection()?;
    if let Some(deadline) = client.deadline {
        // The ORB ends a call that takes longer than its deadline, because the answer would be
        // useless.
        target = target.with_timeout(deadline);
    }
    let mut call = task(client.name, &target)?;
    let done = meter::run(client, length, orb.string_to_reference(recorder)?, &mut call);
    drop(admitted);
    done
}

type Task = Box<dyn FnMut(u32) -> Result<(), SystemException>>;

/// Returns the function that makes a call of the client with this name. Its argument is the number
/// of previous calls.
fn task(name: &str, target: &ObjectRef) -> Result<Task> {
    if name == "bulk" {
        let (maps, block) = (MapStoreRef::from_object(target.clone()), vec![0x5a; 256 << 10]);
        return Ok(Box::new(move |_| maps.store(&block).map(drop)));
    }
    let computer = MissionComputerRef::narrow(target)?.ok_or("the target is no mission computer")?;
    Ok(match name {
        "inertial" => Box::new(move |n| computer.navigate(&attitude(n)).map(drop)),
        "position" => Box::new(move |n| computer.locate(&position(n))),
        "radar" => Box::new(move |n| computer.assess(&contacts(n)).map(drop)),
        "engines" => Box::new(move |n| computer.endurance(&engines(n)).map(drop)),
        "selftest" => Box::new(move |_| computer.check(&self_test()).map(drop)),
        "steering" => Box::new(move |_| computer.steer().map(drop)),
        "display" => Box::new(move |_| computer.show().map(drop)),
        _ => return Err(format!("there is no client {name}").into()),
    })
}

pub(crate) fn attitude(n: u32) -> Attitude {
    let phase = f64::from(n) / 40.0;
    Attitude { roll: 20.0 * phase.sin(), pitch: 2.0 * phase.cos(), heading: 90.0, altitude: 8_000.0 }
}

pub(crate) fn position(n: u32) -> Position {
    Position { latitude: 54.0 + f64::from(n) * 1e-5, longitude: 10.0 }
}

pub(crate) fn contacts(n: u32) -> Vec<Contact> {
    let contact = |i: u32| Contact {
        bearing: f64::from((i * 37 + n) % 360),
        distance: f64::from(5_000 + i * 900),
        closing: f64::from(i) * 20.0 - 310.0,
    };
    (0..32).map(contact).collect()
}

pub(crate) fn engines(n: u32) -> Engines {
    Engines { fuel: 4_000.0 - f64::from(n) * 0.22, burn: 1.1 }
}

pub(crate) fn self_test() -> SelfTest {
    SelfTest { passed: 48, failed: 0 }
}
