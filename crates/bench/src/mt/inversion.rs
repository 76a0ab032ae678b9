//! The benchmark `inversion`: a high-priority client beside floods of ordinary priority on the same server, by dispatch architecture,
//! and by how the clients, which are one process, use connections.

use corelane_sys::thread::Scheduling;

use super::game::{Other, Pace, Seen};
use super::served::{Connections, Served, laned, single};
use super::{TOP, calls, has_priorities, repetitions};
use crate::Failure;
use crate::floor::Carrier;
use crate::harness::{Compare, Figure, Label, Progress};
use crate::idle::Busy;
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::Architecture;
use crate::report::Report;

/// That of the lane in which floods are served.
const LOWEST: u8 = 1;

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
    if !has_priorities("inversion", report)? {
        return Ok(());
    }
    let (calls, repetitions) = (calls(options, [25, 100, 1000]), repetitions(options));
    let architectures = [
        Architecture::PerConnection,
        Architecture::LeaderFollowers(options.threads),
        Architecture::HalfSync(options.threads),
        Architecture::Reactive,
    ];
    let mut servers = Vec::new();
    for architecture in architectures {
        let server = || single(architecture, Connections::Each, options);
        servers.push((server()?, server()?));
    }
    for connections in [Connections::Shared, Connections::SharedByOthers] {
        let server = || single(Architecture::LeaderFollowers(options.threads), connections, options);
        servers.push((server()?, server()?));
    }
    let lanes = || laned(&[TOP, LOWEST, LOWEST, LOWEST, LOWEST], Carrier::Tcp, options);
    servers.push((lanes()?, lanes()?));
    let _busy = Busy::start(&options.placement)?;
    for (one, other) in &servers {
        let mut seen: [Seen; BESIDE.len()] = Default::default();
        for repetition in 0..repetitions {
            for (beside, seen) in BESIDE.iter().zip(&mut seen) {
                progress.show(&format!(
                    "inversion: {} beside {} ({} of {repetitions})",
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
    super::beside(one, floods, calls, options, seen)
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
        own.high.figure(label.clone(), own, &against)
    });
    figures.collect()
}
