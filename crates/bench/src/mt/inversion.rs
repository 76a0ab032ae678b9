//! The benchmark `inversion`: a high-priority client beside floods of ordinary priority on the same server, by dispatch architecture.

use std::time::Duration;

use corelane_sys::thread::Scheduling;

use super::game::{Game, Other, Pace, Seen};
use super::served::{Served, fixed, laned, single};
use super::{REPETITIONS, TOP};
use crate::Failure;
use crate::floor::Carrier;
use crate::harness::{Compare, Figure, Label, Progress};
use crate::idle::Busy;
use crate::operation::Operation;
use crate::options::{Depth, Options};
use crate::orb::Architecture;
use crate::report::Report;

/// That of the lane in which floods are served.
const LOWEST: u8 = 1;

/// The high-priority client's time between calls.
const PERIOD: Duration = Duration::from_millis(10);

/// How many floods there are, where there are any.
const FLOODS: usize = 4;

/// Who else calls.
struct Beside {
    name: &'static str,
    /// What they call, and whether at the same server.
    floods: Option<(Operation, bool)>,
    /// Which of the list this is compared with.
    against: &'static [usize],
}

const LARGE: Operation = Operation::Octets(64 * 1024);

const BESIDE: [Beside; 5] = [
    Beside { name: "nobody else", floods: None, against: &[] },
    Beside { name: "4 floods of octets at another server", floods: Some((Operation::Octet, false)), against: &[0] },
    Beside { name: "4 floods of octets", floods: Some((Operation::Octet, true)), against: &[0, 1] },
    Beside { name: "4 floods of 64 KiB at another server", floods: Some((LARGE, false)), against: &[0] },
    Beside { name: "4 floods of 64 KiB", floods: Some((LARGE, true)), against: &[0, 3] },
];

pub(crate) fn inversion(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    if !fixed() {
        let reason = "fixed priorities are not permitted here, so there is nothing to invert";
        return report.missing("inversion", "Corelane", reason);
    }
    let calls = match options.depth {
        Depth::Quick => 25,
        Depth::Usual => 100,
        Depth::Full => 1000,
    };
    let architectures = [
        Architecture::PerConnection,
        Architecture::LeaderFollowers(options.threads),
        Architecture::HalfSync(options.threads),
        Architecture::Reactive,
    ];
    let mut servers = Vec::new();
    for architecture in architectures {
        servers.push((single(architecture, options)?, single(architecture, options)?));
    }
    let lanes = || laned(&[TOP, LOWEST, LOWEST, LOWEST, LOWEST], Carrier::Tcp, options);
    servers.push((lanes()?, lanes()?));
    let _busy = Busy::start(&options.placement)?;
    for (one, other) in &servers {
        let mut seen: [Seen; BESIDE.len()] = Default::default();
        for repetition in 0..REPETITIONS {
            for (beside, seen) in BESIDE.iter().zip(&mut seen) {
                progress.show(&format!(
                    "inversion: {} beside {} ({} of {REPETITIONS})",
                    one.config,
                    beside.name,
                    repetition + 1
                ));
                once(one, other, beside, calls, options, seen)?;
            }
        }
        progress.clear();
        let title = format!(
            "inversion: high-priority client at 100 Hz beside floods of ordinary priority, {}, idle states held off",
            one.config
        );
        report.figures(&title, Compare::Median, &figures(one, &seen))?;
    }
    Ok(())
}

fn once(
    one: &Served,
    other: &Served,
    beside: &Beside,
    calls: usize,
    options: &Options,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let mut floods = Vec::new();
    if let Some((operation, same)) = beside.floods {
        let flooded = if same { one } else { other };
        for number in 1..=FLOODS {
            let member = flooded.member(number, operation)?;
            floods.push(Other { member, scheduling: Scheduling::Other, pace: Pace::Flood });
        }
    }
    let game = Game {
        high: one.member(0, Operation::Octet)?,
        scheduling: Scheduling::Fifo(TOP),
        period: PERIOD,
        calls,
        placement: options.placement,
        server: one.pid(),
    };
    game.play(floods, seen)
}

fn figures(one: &Served, seen: &[Seen]) -> Vec<Figure> {
    let label = |beside: &Beside| Label {
        bench: "inversion",
        peer: one.peer,
        transport: one.transport,
        op: "octet".to_owned(),
        config: format!("{}, {}", one.config, beside.name),
        along: None,
    };
    let labels: Vec<Label> = BESIDE.iter().map(label).collect();
    let figures = BESIDE.iter().zip(&labels).zip(seen).filter_map(|((beside, label), own)| {
        let against: Vec<_> = beside.against.iter().map(|&at| (&labels[at], &seen[at].high)).collect();
        own.high.figure(label.clone(), own.cost, &against)
    });
    figures.collect()
}
