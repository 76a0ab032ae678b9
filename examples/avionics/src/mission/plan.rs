//! The work of the mission computer on the event channel: events, deadlines and modes.

use std::time::Duration;

use corelane_services::events::{EventNames, EventType};

use crate::avionics::Mode;

pub(crate) const INERTIAL: EventType = EventType(16);
pub(crate) const POSITION: EventType = EventType(17);
pub(crate) const RADAR: EventType = EventType(18);
pub(crate) const ENGINES: EventType = EventType(19);
pub(crate) const SELFTEST: EventType = EventType(20);
pub(crate) const NAVIGATION: EventType = EventType(21);
pub(crate) const THREATS: EventType = EventType(22);

/// Returns the names of the event types. A sensor has the name of its events.
pub(crate) fn event_names() -> EventNames {
    let mut names = EventNames::new();
    for (name, event_type) in [
        ("inertial", INERTIAL),
        ("position", POSITION),
        ("radar", RADAR),
        ("engines", ENGINES),
        ("selftest", SELFTEST),
        ("navigation", NAVIGATION),
        ("threats", THREATS),
    ] {
        names.add_type(name, event_type);
    }
    names
}

/// Work that events start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    /// The events that start the work, as a filter expression.
    pub(crate) filter: &'static str,
    /// The rate group, which is a lane of the channel.
    pub(crate) group: u32,
    /// Number of starts per second.
    pub(crate) rate: u32,
    /// Maximum time from the instant at which the last of the sensors' samples was due to the end
    /// of the work.
    pub(crate) deadline: Duration,
    /// Longest processor time.
    pub(crate) execution: Duration,
    pub(crate) modes: &'static [Mode],
}

const BOTH: &[Mode] = &[Mode::Cruise, Mode::Attack];

#[rustfmt::skip]
pub(crate) const WORK: [Work; 6] = [
    work("navigation", "all(inertial, position)", 20, 20, 5, 2, BOTH),
    work("threats", "radar", 10, 10, 10, 2, BOTH),
    work("endurance", "engines", 5, 5, 20, 1, BOTH),
    work("health", "selftest", 1, 1, 100, 5, &[Mode::Cruise]),
    work("hud", "navigation or threats", 20, 30, 20, 1, BOTH),
    work("tracking", "all(navigation, threats)", 10, 10, 50, 3, &[Mode::Attack]),
];

/// Returns work with a deadline and an execution time in milliseconds.
const fn work(
    name: &'static str,
    filter: &'static str,
    group: u32,
    rate: u32,
    deadline: u64,
    execution: u64,
    modes: &'static [Mode],
) -> Work {
    let (deadline, execution) = (Duration::from_millis(deadline), Duration::from_millis(execution));
    Work { name, filter, group, rate, deadline, execution, modes }
}
