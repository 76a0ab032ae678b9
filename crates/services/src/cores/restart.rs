//! The octets that an admission object keeps with its task registry, so that a restarted server has
//! the references of its tasks.
//!
//! ```text
//! of the server: 2 u64 tag key | addresses of the pool | u32 n | n times addresses of an endpoint
//! of a task:     target, a text | 00 no reference yet, 01 addresses of the pool, 02 | addresses of its endpoint
//! addresses:     u32 n | n texts
//! ```
//! Numbers are big-endian. Addresses have the form of `OrbBuilder::listen`.

use std::sync::Arc;

use corelane::rt::{CorePool, CorePoolConfig};
use corelane::{Completion, Endpoint, Orb, SystemException, SystemExceptionKind as Kind};

use super::dispatch::TaskKeys;
use super::records::{BadRecord, Fields, push_octets};
use super::registry::TaskRegistry;
use super::task_id::TagKey;

/// The numbers of promises that a service has taken over from an earlier process
/// ([`AdmissionService::restored_tasks`](super::AdmissionService::restored_tasks)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoredTasks {
    /// Number of promised tasks, each of which begins a new lease.
    pub tasks: usize,
    /// Number of tasks in `tasks` that have no core.
    pub demoted: usize,
    /// Number of tasks in `tasks` whose references have other addresses than before. The clients of
    /// these tasks get the new references from the operation `outcome`.
    pub tasks_with_new_references: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerData {
    pub(super) tags: TagKey,
    /// The addresses of the core pool; without a pool, the addresses of the ORB.
    pub(super) pool: Vec<String>,
    pub(super) endpoints: Vec<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ReferenceAddress {
    #[default]
    None,
    Pool,
    Endpoint(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskAttachment {
    pub(super) target: String,
    pub(super) address: ReferenceAddress,
}

pub(super) fn texts(addresses: &[Endpoint]) -> Vec<String> {
    addresses.iter().map(Endpoint::to_string).collect()
}

pub(super) fn persist_store(why: &str) -> SystemException {
    SystemException::new(Kind::PersistStore, 0, Completion::No).with_message(why)
}

impl From<BadRecord> for SystemException {
    fn from(_: BadRecord) -> Self {
        persist_store("the store of the task registry has a malformed record: put a backup in its place")
    }
}

pub(super) fn server_data(registry: &dyn TaskRegistry) -> Result<Option<ServerData>, BadRecord> {
    match registry.server_data() {
        [] => Ok(None),
        octets => ServerData::decode(octets).map(Some),
    }
}

/// Returns true if the pool may listen at `kept`, the addresses of the earlier process. `own` are
/// the configured addresses, or the addresses of the ORB if `is_beside_orb`.
fn are_kept(kept: &[String], own: &[String], is_beside_orb: bool) -> bool {
    // The kernel chooses the port for port 0. Any other address must be the same.
    let is_kept = |kept: &str, own: &str| {
        if is_beside_orb || own.ends_with(":0") { is_beside(kept, own) } else { kept == own }
    };
    kept.len() == own.len() && kept.iter().zip(own).all(|(kept, own)| is_kept(kept, own))
}

/// Returns true if `address` has the host of the TCP address `of`. For any other `of`, returns true
/// if `address` begins with `of`.
fn is_beside(address: &str, of: &str) -> bool {
    let host = |text: &str| text.rsplit_once(':').map(|(host, _)| host.to_owned());
    if of.starts_with("tcp:") { host(address) == host(of) } else { address.starts_with(of) }
}

/// Creates a core pool at the addresses of the earlier process. If there was no earlier pool, if
/// the pool cannot listen there, or if the configured addresses have changed, the pool listens at
/// the configured addresses.
pub(super) fn create_pool(
    orb: &Orb,
    config: &CorePoolConfig,
    kept: Option<&ServerData>,
    keys: &Arc<TaskKeys>,
) -> Result<CorePool, SystemException> {
    let create = |config: &CorePoolConfig| orb.real_time().create_core_pool(config, Arc::<TaskKeys>::clone(keys));
    let own = if config.listen.is_empty() { texts(orb.endpoints()) } else { config.listen.clone() };
    let is_beside_orb = config.listen.is_empty();
    let Some(kept) = kept.filter(|kept| are_kept(&kept.pool, &own, is_beside_orb)) else { return create(config) };
    let mut config = config.clone();
    if config.task_addresses.is_empty() {
        config.task_addresses.clone_from(&kept.endpoints);
    }
    let mut at_kept = config.clone();
    at_kept.listen.clone_from(&kept.pool);
    create(&at_kept).or_else(|_| create(&config))
}

/// Appends a count, which is below 2^32.
fn push_count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u32).to_be_bytes());
}

fn push_addresses(out: &mut Vec<u8>, addresses: &[String]) {
    push_count(out, addresses.len());
    addresses.iter().for_each(|address| push_octets(out, address.as_bytes()));
}

fn addresses(fields: &mut Fields<'_>) -> Result<Vec<String>, BadRecord> {
    (0..fields.u32()?).map(|_| fields.text().map(str::to_owned)).collect()
}

impl ServerData {
    pub(super) fn new(tags: TagKey, orb: &Orb, pool: Option<&CorePool>) -> Self {
        let endpoints = pool.map(CorePool::task_addresses).unwrap_or_default();
        let endpoints = endpoints.iter().map(|addresses| texts(addresses)).collect();
        ServerData { tags, pool: texts(pool.map_or(orb.endpoints(), CorePool::addresses)), endpoints }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.tags.0.iter().for_each(|half| out.extend(half.to_be_bytes()));
        push_addresses(&mut out, &self.pool);
        push_count(&mut out, self.endpoints.len());
        self.endpoints.iter().for_each(|addresses| push_addresses(&mut out, addresses));
        out
    }

    pub(super) fn decode(octets: &[u8]) -> Result<Self, BadRecord> {
        let mut fields = Fields(octets);
        let tags = TagKey([fields.u64()?, fields.u64()?]);
        let pool = addresses(&mut fields)?;
        let endpoints = (0..fields.u32()?).map(|_| addresses(&mut fields)).collect::<Result<_, _>>()?;
        fields.end(ServerData { tags, pool, endpoints })
    }
}

impl TaskAttachment {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_octets(&mut out, self.target.as_bytes());
        match &self.address {
            ReferenceAddress::None => out.push(0),
            ReferenceAddress::Pool => out.push(1),
            ReferenceAddress::Endpoint(addresses) => {
                out.push(2);
                push_addresses(&mut out, addresses);
            }
        }
        out
    }

    pub(super) fn decode(octets: &[u8]) -> Result<Self, BadRecord> {
        let mut fields = Fields(octets);
        let target = fields.text()?.to_owned();
        let address = match fields.octet()? {
            0 => ReferenceAddress::None,
            1 => ReferenceAddress::Pool,
            2 => ReferenceAddress::Endpoint(addresses(&mut fields)?),
            _ => return Err(BadRecord),
        };
        fields.end(TaskAttachment { target, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_address_of_the_configuration_counts() {
        let are_kept = |kept: &str, own: &str, beside| are_kept(&[kept.to_owned()], &[own.to_owned()], beside);
        assert!(are_kept("tcp:127.0.0.1:40000", "tcp:127.0.0.1:2810", true));
        assert!(are_kept("tcp:127.0.0.1:40000", "tcp:127.0.0.1:0", false));
        assert!(!are_kept("tcp:127.0.0.1:40000", "tcp:127.0.0.2:0", false));
        assert!(!are_kept("tcp:127.0.0.1:2811", "tcp:127.0.0.1:2911", false));
        assert!(are_kept("tcp:127.0.0.1:2811", "tcp:127.0.0.1:2811", false));
        assert!(!are_kept("unix:/run/a-pool", "unix:/run/a", false));
        assert!(are_kept("unix:/run/a-pool", "unix:/run/a", true));
        assert!(!super::are_kept(&[], &["tcp:127.0.0.1:0".to_owned()], false));
    }

    #[test]
    fn written_data_are_read_back_and_shortened_data_refused() {
        let text = |number: u16| format!("tcp:127.0.0.1:{number}");
        let server =
            ServerData { tags: TagKey([1, u64::MAX]), pool: vec![text(1)], endpoints: vec![vec![text(2)], vec![]] };
        let octets = server.encode();
        assert_eq!(ServerData::decode(&octets), Ok(server));
        (0..octets.len()).for_each(|length| assert_eq!(ServerData::decode(&octets[..length]), Err(BadRecord)));
        for address in [ReferenceAddress::None, ReferenceAddress::Pool, ReferenceAddress::Endpoint(vec![text(3)])] {
            let task = TaskAttachment { target: "IOR:00".to_owned(), address };
            let octets = task.encode();
            assert_eq!(TaskAttachment::decode(&octets), Ok(task));
            (0..octets.len()).for_each(|length| assert_eq!(TaskAttachment::decode(&octets[..length]), Err(BadRecord)));
        }
    }
}
