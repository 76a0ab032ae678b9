//! Corelane's servers, each in a process of its own. The server of many objects answers lines of
//! its standard input:
//!
//! | line | answer |
//! |---|---|
//! | `same N` | references of N objects, spread evenly over all objects |
//! | `random N` | references of N objects in a fixed pseudo-random order |
//! | `octets` | bytes of resident memory that the activation of each object uses |

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use corelane::poa::{ObjectId, PoaPolicies};
use corelane::rt::{
    DirectMapping, LaneConfig, LanesConfig, NativePriorityRange, PriorityModel, RtConfig, RtPolicies, SchedulingClass,
    ThreadpoolConfig,
};
use corelane::{Endpoint, Orb, PoolConfig, Servant, SpinPolicy};
use corelane_wire::ior::escape_key;

use super::generated::cubit::CountedTarget;
use super::servant::Echo;
use super::{ServerArchitecture, levels, limits, wide};
use crate::Failure;
use crate::address::LOOPBACK;
use crate::cost::resident_memory_kib;
use crate::orb::keys::KeyLifetime;
use crate::service::serve_lines;

pub(crate) fn serve_echo(architecture: ServerArchitecture, address: &str) -> Result<(), Failure> {
    one(architecture.pool(), address, CountedTarget::servant(Echo))
}

pub(crate) fn serve_non_polling_echo(architecture: ServerArchitecture, address: &str) -> Result<(), Failure> {
    one(architecture.pool().spin_policy(Some(SpinPolicy::Never)), address, CountedTarget::servant(Echo))
}

/// Serves an object whose calls run at one priority (SERVER_DECLARED), without a change of the
/// priority of the pool's threads.
pub(crate) fn serve_single_priority(architecture: ServerArchitecture) -> Result<(), Failure> {
    let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(rt).pool(architecture.pool()).limits(limits()).listen(LOOPBACK);
    let orb = orb.build().map_err(failed)?;
    let policies =
        RtPolicies { priority_model: Some((PriorityModel::ServerDeclared, i16::MAX)), ..RtPolicies::default() };
    let root = orb.root_poa();
    let poa =
        root.create_rt_poa("declared", Some(root.manager()), PoaPolicies::default(), &policies).map_err(failed)?;
    let reference = poa.activate(&CountedTarget::servant(Echo)).map_err(failed)?;
    root.manager().activate().map_err(failed)?;
    println!("ready {reference}");
    serve_lines(|_| None).map_err(failed)
}

/// Creates an ORB with an object in the highest of `number` lanes. Returns the ORB, and a reference
/// to the object with the endpoint of the ORB. Requests that arrive there are handed over to the
/// lane.
pub(crate) fn orb_with_lanes(number: u8) -> Result<(Orb, String), Failure> {
    let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(rt).limits(limits()).listen(LOOPBACK).build().map_err(failed)?;
    let lanes = (1..=i16::from(number)).map(|lane| LaneConfig::default().priority(100 * lane));
    let config = LanesConfig::default().lanes(lanes);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).map_err(failed)?;
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, 100 * i16::from(number))),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("lanes", Some(root.manager()), PoaPolicies::default(), &policies).map_err(failed)?;
    let reference = poa.activate(&CountedTarget::servant(Echo)).map_err(failed)?;
    root.manager().activate().map_err(failed)?;
    let key = reference.ior().known_profiles().next().map(|profile| escape_key(profile.object_key));
    let (Some(Endpoint::Tcp { port, .. }), Some(key)) = (orb.endpoints().first(), key) else {
        return Err(Failure::new("the server has no address"));
    };
    let reference = format!("corbaloc:iiop:1.2@127.0.0.1:{port}/{key}");
    Ok((orb, reference))
}

pub(crate) fn serve_operations(width: usize) -> Result<(), Failure> {
    let servant =
        wide::servant(width).ok_or_else(|| Failure::new(format!("there is no interface of {width} operations")))?;
    one(ServerArchitecture::PerConnection.pool(), LOOPBACK, servant)
}

fn one(pool: PoolConfig, address: &str, servant: Servant) -> Result<(), Failure> {
    let orb = start_pool(pool, address)?;
    let poa = orb.root_poa();
    let id = poa.activate_object(&servant).map_err(failed)?;
    poa.manager().activate().map_err(failed)?;
    println!("ready {}", poa.id_to_reference(&id).map_err(failed)?);
    serve_lines(|_| None).map_err(failed)
}

pub(crate) fn serve_many_objects(
    count: usize,
    keys: KeyLifetime,
    architecture: ServerArchitecture,
) -> Result<(), Failure> {
    let orb = start_orb(architecture, LOOPBACK)?;
    let root = orb.root_poa();
    let poa = match keys {
        KeyLifetime::Transient => root.clone(),
        KeyLifetime::Persistent | KeyLifetime::Hinted => {
            root.create_poa("bench", Some(root.manager()), keys.policies()).map_err(failed)?
        }
    };
    let servants: Vec<Servant> = (0..count).map(|_| CountedTarget::servant(Echo)).collect();
    let mut ids: Vec<ObjectId> = Vec::with_capacity(count);
    let resident = || resident_memory_kib(std::process::id())[0] * 1024.0;
    let before = resident();
    for (number, servant) in servants.iter().enumerate() {
        ids.push(match keys {
            KeyLifetime::Transient => poa.activate_object(servant).map_err(failed)?,
            KeyLifetime::Persistent | KeyLifetime::Hinted => {
                let id = ObjectId::from(format!("object {number:07}").as_str());
                poa.activate_object_with_id(&id, servant).map_err(failed)?;
                id
            }
        });
    }
    let with_ids = resident();
    // The memory of the ids is subtracted, because a server need not keep them.
    let copies = ids.clone();
    let of_ids = (resident() - with_ids).max(0.0);
    drop(copies);
    let octets = (with_ids - before - of_ids).max(0.0) / count.max(1) as f64;
    root.manager().activate().map_err(failed)?;
    let reference = |index: usize| {
        let text = poa.id_to_reference(&ids[index]).map(|reference| reference.to_string());
        text.unwrap_or_else(|error| format!("({error})"))
    };
    println!("ready");
    serve_lines(|line| {
        let (word, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number: usize = number.parse().unwrap_or(0);
        match word {
            "octets" => Some(format!("{octets:.1}")),
            "same" => Some(list((0..number).map(|index| reference(index * count / number)))),
            "random" => Some(list(PseudoRandom::new().take(number).map(|index| reference(index as usize % count)))),
            _ => Some(format!("error unknown line `{word}`")),
        }
    })
    .map_err(failed)
}

/// Serves an object in a POA with `depth` levels below the root POA. Persistent keys need a depth
/// of at least 1.
pub(crate) fn serve_nested_poa(depth: usize, keys: KeyLifetime) -> Result<(), Failure> {
    let orb = start_orb(ServerArchitecture::PerConnection, LOOPBACK)?;
    let root = orb.root_poa();
    let policies = keys.policies();
    let mut poa = root.clone();
    for level in 1..=depth {
        poa = poa.create_poa(&format!("level{level:02}"), Some(root.manager()), policies).map_err(failed)?;
    }
    let servant = CountedTarget::servant(Echo);
    let id = match keys {
        KeyLifetime::Transient => poa.activate_object(&servant).map_err(failed)?,
        KeyLifetime::Persistent | KeyLifetime::Hinted => {
            let id = ObjectId::from("object");
            poa.activate_object_with_id(&id, &servant).map_err(failed)?;
            id
        }
    };
    root.manager().activate().map_err(failed)?;
    println!("ready {}", poa.id_to_reference(&id).map_err(failed)?);
    serve_lines(|_| None).map_err(failed)
}

/// Serves an object for each native priority, in the lane of this priority (SERVER_DECLARED). Each
/// lane has a port, or a Unix socket if `address` is one.
pub(crate) fn serve_lanes(priorities: &[u8], address: &str) -> Result<(), Failure> {
    let rt = RtConfig::default().priority_mapping(Arc::new(DirectMapping(NativePriorityRange::FIXED_PRIORITIES)));
    let orb = Orb::builder().real_time(rt).limits(limits()).listen(address).build().map_err(failed)?;
    let mut lanes = priorities.to_vec();
    lanes.sort_unstable();
    lanes.dedup();
    let lanes = lanes.iter().map(|&priority| {
        let listen = address.starts_with("unix:").then(|| format!("{address}-{priority}"));
        let ceiling = Some(i16::MAX);
        let mut lane = LaneConfig::default().priority(priority.into()).max_request_priority(ceiling);
        lane.listen.extend(listen);
        lane
    });
    let config = LanesConfig::default().lanes(lanes);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).map_err(failed)?;
    let highest = priorities.iter().copied().max().unwrap_or(1);
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, highest.into())),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("lanes", Some(root.manager()), PoaPolicies::default(), &policies).map_err(failed)?;
    let mut references = Vec::with_capacity(priorities.len());
    for &priority in priorities {
        let servant = CountedTarget::servant(Echo);
        let id = poa.activate_object_with_priority(&servant, priority.into()).map_err(failed)?;
        references.push(poa.id_to_reference(&id).map_err(failed)?.to_string());
    }
    root.manager().activate().map_err(failed)?;
    println!("ready");
    serve_lines(|_| Some(references.join(" "))).map_err(failed)
}

/// Serves an object for each priority. Each native level of the priorities has a lane, a port and a
/// priority band.
pub(crate) fn serve_bands(priorities: &[i16]) -> Result<(), Failure> {
    let rt = RtConfig::default().priority_mapping(Arc::new(levels::MAPPING));
    let orb = Orb::builder().real_time(rt).limits(limits()).listen(LOOPBACK).build().map_err(failed)?;
    let used: BTreeSet<u8> = priorities.iter().map(|&priority| levels::level(priority)).collect();
    let bands: Vec<(i16, i16)> = used.into_iter().filter_map(levels::band).collect();
    let highest = bands.last().ok_or_else(|| Failure::new("there are no priorities to serve"))?.0;
    let lanes = bands.iter().map(|&(priority, _)| LaneConfig::default().priority(priority));
    let config = LanesConfig::default().lanes(lanes);
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, highest)),
        threadpool: Some(orb.real_time().create_threadpool_with_lanes(&config).map_err(failed)?),
        priority_bands: Some(bands),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("bands", Some(root.manager()), PoaPolicies::default(), &policies).map_err(failed)?;
    let references = priorities.iter().map(|_| poa.activate(&CountedTarget::servant(Echo)));
    let references: Result<Vec<_>, _> = references.collect();
    let references = list(references.map_err(failed)?.iter().map(ToString::to_string));
    root.manager().activate().map_err(failed)?;
    println!("ready");
    serve_lines(|_| Some(references.clone())).map_err(failed)
}

/// Serves an object in a pool of one thread without lanes. The thread waits at this native
/// priority, and changes to the priority of each request.
pub(crate) fn serve_without_lanes(priority: u8) -> Result<(), Failure> {
    let rt = RtConfig::default().priority_mapping(Arc::new(DirectMapping(NativePriorityRange::FIXED_PRIORITIES)));
    let orb = Orb::builder().real_time(rt).limits(limits()).listen(LOOPBACK).build().map_err(failed)?;
    let config = ThreadpoolConfig::default().default_priority(priority.into());
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, priority.into())),
        threadpool: Some(orb.real_time().create_threadpool(&config).map_err(failed)?),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("pool", Some(root.manager()), PoaPolicies::default(), &policies).map_err(failed)?;
    let reference = poa.activate(&CountedTarget::servant(Echo)).map_err(failed)?;
    root.manager().activate().map_err(failed)?;
    println!("ready {reference}");
    serve_lines(|_| None).map_err(failed)
}

pub(crate) fn start_orb(architecture: ServerArchitecture, address: &str) -> Result<Orb, Failure> {
    start_pool(architecture.pool(), address)
}

fn start_pool(pool: PoolConfig, address: &str) -> Result<Orb, Failure> {
    Orb::builder().pool(pool).limits(limits()).listen(address).build().map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

fn list(texts: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for text in texts {
        let _ = write!(line, "{}{text}", if line.is_empty() { "" } else { " " });
    }
    line
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PseudoRandom(u64);

impl PseudoRandom {
    pub(crate) fn new() -> Self {
        PseudoRandom(0)
    }
}

impl Iterator for PseudoRandom {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The shift clears the highest bit, so that the number fits into an `i64`.
        Some((mixed ^ (mixed >> 31)) >> 1)
    }
}
