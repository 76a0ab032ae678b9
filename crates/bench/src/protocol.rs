//! The benchmark `protocol`: paper 4's comparison of calls with marshalling and without. The same number of octets travels once as what the IDL says and once
//! as an octet sequence, which neither side looks into.

use crate::Failure;
use crate::call::message_sizes;
use crate::floor::{Carrier, Waiting};
use crate::harness::{Compare, Group, Label, Progress, Variant, measure};
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::client::{Calls, target};
use crate::orb::client_orb;
use crate::peer::{Invocation, Kind, Peer, Threads};
use crate::report::Report;
use crate::scene::{Corelane, Floor};

/// What is called unless something else is asked for.
const USUAL: [Operation; 3] = [Operation::Longs(4), Operation::Longs(1024), Operation::Structs(1024)];

/// A group for each operation.
pub(crate) fn protocol(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let omniorb = if options.without_peers {
        Err(Failure::new("left out by --without-peers"))
    } else {
        Peer::build(Kind::OmniOrb, &options.peers)
    };
    let omniorb = match omniorb {
        Ok(peer) => Some((peer.serve(Carrier::Tcp, Threads::Usual, &options.placement)?, peer)),
        Err(reason) => {
            report.missing("protocol", Kind::OmniOrb.name(), &reason.to_string())?;
            None
        }
    };
    let orb = client_orb(0)?;
    let blocking = Floor::start(Carrier::Tcp, Waiting::Blocking, options)?;
    for operation in options.operations_or(&USUAL) {
        let Some(octets) = operation.as_octets() else {
            let reason = format!("{operation}: no octet sequence has a message as small, or oneways");
            report.missing("protocol", "Corelane", &reason)?;
            continue;
        };
        let sizes = message_sizes(&orb, operation, options)?;
        let servers = Corelane::start(Carrier::Tcp, options)?;
        let mut variants = Vec::new();
        variants.extend(blocking.variant("protocol", operation, sizes)?);
        for (called, how) in [(operation, "with marshalling"), (octets, "as octets")] {
            let label = |peer, config: &str| Label {
                bench: "protocol",
                peer,
                transport: "tcp",
                op: operation.to_string(),
                config: format!("{how}, {config}"),
                along: None,
            };
            for server in servers.iter().filter(|server| server.is_per_connection()) {
                let target = target(&orb, &server.reference)?;
                let calls = Calls { target, operation: called, server: server.server.pid() };
                variants.push(Variant {
                    label: label("Corelane", &server.config()),
                    subject: Box::new(calls),
                    against: vec![0],
                });
            }
            if let Some(((server, reference), peer)) = &omniorb {
                let calls = peer.client(reference, called, server.pid(), Invocation::Stubs, &options.placement)?;
                let label = label("omniORB", "as it comes");
                variants.push(Variant { label, subject: Box::new(calls), against: vec![0] });
            }
        }
        let title = format!("protocol: {operation} and as many octets");
        let mut group = Group { title, compare: Compare::Median, variants };
        let figures = measure(&mut group, &options.extent, &options.placement, progress)?;
        report.figures(&group.title, group.compare, &figures)?;
    }
    Ok(())
}
