//! The clients: their calls, rates and deadlines.

use std::time::Duration;

use corelane::{ObjectRef, Orb, SystemException};
use corelane_services::cores::AdmittedTask;
use corelane_services::cores::protocol::TasksRef;

use crate::avionics::{Attitude, Contact, Engines, MapStoreRef, MissionComputerRef};
use crate::{Result, admission, meter};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) name: &'static str,
    pub(crate) task: &'static str,
    /// Calls per second.
    pub(crate) rate: u32,
    /// Maximum time from the instant at which a call is due to its result.
    pub(crate) deadline: Option<Duration>,
    /// Longest processor time of a call at the server; `None` for a client without a task.
    pub(crate) execution: Option<Duration>,
    /// Fixed priority; `None` for a client without a deadline.
    pub(crate) priority: Option<u8>,
}

/// The clients that use Corelane.
pub(crate) const CLIENTS: [Client; 5] = [
    Client {
        name: "inertial",
        task: "navigate",
        rate: 20,
        deadline: millis(5),
        execution: millis(1),
        priority: Some(30),
    },
    Client {
        name: "radar",
        task: "assess 32 contacts",
        rate: 10,
        deadline: millis(10),
        execution: millis(2),
        priority: Some(20),
    },
    Client {
        name: "engines",
        task: "endurance",
        rate: 5,
        deadline: millis(20),
        execution: millis(1),
        priority: Some(10),
    },
    Client { name: "display", task: "show", rate: 25, deadline: None, execution: None, priority: None },
    Client { name: "bulk", task: "store 256 KiB", rate: 40, deadline: None, execution: None, priority: None },
];

const fn millis(milliseconds: u64) -> Option<Duration> {
    Some(Duration::from_millis(milliseconds))
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

/// Returns a function whose argument is the number of previous calls.
fn task(name: &str, target: &ObjectRef) -> Result<Task> {
    if name == "bulk" {
        let (maps, block) = (MapStoreRef::from_object(target.clone()), vec![0x5a; 256 << 10]);
        return Ok(Box::new(move |_| maps.store(&block).map(drop)));
    }
    let computer = MissionComputerRef::narrow(target)?.ok_or("the target is no mission computer")?;
    Ok(match name {
        "inertial" => Box::new(move |n| computer.navigate(&attitude(n)).map(drop)),
        "radar" => Box::new(move |n| computer.assess(&contacts(n)).map(drop)),
        "engines" => Box::new(move |n| computer.endurance(&engines(n)).map(drop)),
        "display" => Box::new(move |_| computer.show().map(drop)),
        _ => return Err(format!("there is no client {name}").into()),
    })
}

fn attitude(n: u32) -> Attitude {
    let phase = f64::from(n) / 40.0;
    Attitude { roll: 20.0 * phase.sin(), pitch: 2.0 * phase.cos(), heading: 90.0, altitude: 8_000.0 }
}

fn contacts(n: u32) -> Vec<Contact> {
    let contact = |i: u32| Contact {
        bearing: f64::from((i * 37 + n) % 360),
        distance: f64::from(5_000 + i * 900),
        closing: f64::from(i) * 20.0 - 310.0,
    };
    (0..32).map(contact).collect()
}

fn engines(n: u32) -> Engines {
    Engines { fuel: 4_000.0 - f64::from(n) * 0.22, burn: 1.1 }
}
