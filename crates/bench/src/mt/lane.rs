//! The benchmark `lane`: what a lane adds to a call, beside a plain pool with the same thread at the same priority.

use corelane_sys::thread::Scheduling;

use super::has_priorities;
use super::served::PATIENCE;
use crate::Failure;
use crate::call::{compare, message_sizes};
use crate::cubit::extent;
use crate::floor::Carrier;
use crate::harness::{Group, Label, Progress, Variant, measure};
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::client::{Calls, target};
use crate::orb::server::LOOPBACK;
use crate::orb::{Architecture, client_orb};
use crate::placement::Placement;
use crate::report::Report;
use crate::server::{start_echo, start_laned};

/// Of the one thread that serves, in the pool and in the lane.
const PRIORITY: u8 = 10;

pub(crate) fn lane(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    if !has_priorities("lane", report)? {
        return Ok(());
    }
    let orb = client_orb(0)?;
    let plain_pool = Architecture::LeaderFollowers(1);
    let at_priority = Placement { scheduling: Some(Scheduling::Fifo(PRIORITY)), ..options.placement };
    // Lanes have priorities of their own.
    let as_it_is = Placement { scheduling: None, ..options.placement };
    for operation in options.operations_or(&[Operation::Octet, Operation::Longs(1024)]) {
        let (plain, reference) = start_echo(plain_pool, LOOPBACK, &at_priority)?;
        let mut laned = start_laned(&[PRIORITY], Carrier::Tcp, &as_it_is)?;
        let in_lane = laned.ask("references", PATIENCE)?;
        let variant = |config: String, reference: &str, server, against| {
            let label = Label {
                bench: "lane",
                peer: "Corelane",
                transport: Carrier::Tcp.name(),
                op: operation.to_string(),
                config,
                along: None,
            };
            let calls = Calls { target: target(&orb, reference)?, operation, server };
            Ok::<_, Failure>(Variant { label, subject: Box::new(calls), against })
        };
        let variants = vec![
            variant(plain_pool.config(), &reference, plain.pid(), Vec::new())?,
            variant("a lane of 1 thread".to_owned(), &in_lane, laned.pid(), vec![0])?,
        ];
        let sizes = message_sizes(&orb, operation, options)?;
        let title = format!("lane {operation}: a lane beside a plain pool, one thread at priority {PRIORITY} each");
        let mut group = Group { title, compare: compare(operation), variants };
        let figures = measure(&mut group, &extent(options.extent, sizes), &options.placement, progress)?;
        report.figures(&group.title, group.compare, &figures)?;
    }
    Ok(())
}
