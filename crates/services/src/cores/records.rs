//! Records of the admission object in a store, format 1.
//!
//! ```text
//! 01 "number"   -> u64: no task has a larger number
//! 01 "server"   -> octets that the server keeps for itself
//! 02 | u64 task -> token, 16 octets | u64 lease | core | home | timing, 6 u64
//!                  | criticality, 1 octet | pinned core | action on an overrun, 1 octet
//!                  | client | name | operation | attachment
//! ```
//! Numbers are big-endian. A core is 00, or 01 | u32 host | u32 core. A text or an attachment is
//! its u32 length and its octets. Times are in nanoseconds. A store has the promises of tasks that
//! are admitted and have not ended.

use std::sync::Arc;

use corelane::rt::JobOverrunAction;
use corelane_sched::task::{CoreId, Criticality, HostId, Nanos, TaskId, Timing};

use super::registry::{ClientName, TaskRequest, TaskToken};
use crate::store::RecordFormat;

pub(super) const KIND: RecordFormat = RecordFormat { service: "cores", format: 1 };

pub(super) const NUMBER_KEY: &[u8] = b"\x01number";
pub(super) const SERVER_KEY: &[u8] = b"\x01server";
const PROMISE: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedPromise {
    /// The request as it is now. Its `lease` is the longest lease that the task has had.
    pub(super) request: TaskRequest,
    pub(super) client: ClientName,
    pub(super) token: TaskToken,
    /// The core of the task; `None` while the task is demoted.
    pub(super) core: Option<CoreId>,
    /// The core that the task has lost, and to which it returns if the core has room.
    pub(super) home: Option<CoreId>,
    pub(super) attachment: Arc<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CoresRecord {
    Number(u64),
    Server(Vec<u8>),
    Promise(TaskId, SavedPromise),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRecord;

pub(super) fn promise_key(task: TaskId) -> Vec<u8> {
    [&[PROMISE][..], &task.0.to_be_bytes()].concat()
}

pub(super) fn push_octets(out: &mut Vec<u8>, octets: &[u8]) {
    // The parts of a record are shorter than 2^32 octets.
    out.extend((octets.len() as u32).to_be_bytes());
    out.extend(octets);
}

fn push_core(out: &mut Vec<u8>, core: Option<CoreId>) {
    out.push(u8::from(core.is_some()));
    if let Some(core) = core {
        out.extend(core.host.0.to_be_bytes());
        out.extend(core.core.to_be_bytes());
    }
}

pub(super) fn encode_promise(promise: &SavedPromise) -> Vec<u8> {
    let SavedPromise { request, client, token, core, home, attachment } = promise;
    let Timing { execution, period, deadline, jitter, blocking, min_interarrival: min_distance } = request.timing;
    let mut out = token.0.to_vec();
    out.extend(request.lease.to_be_bytes());
    push_core(&mut out, *core);
    push_core(&mut out, *home);
    [execution, period, deadline, jitter, blocking, min_distance]
        .iter()
        .for_each(|time| out.extend(time.to_be_bytes()));
    out.push(match request.criticality {
        Criticality::Low => 0,
        Criticality::Normal => 1,
        Criticality::High => 2,
    });
    push_core(&mut out, request.pinned_core);
    out.push(match request.overrun_action {
        JobOverrunAction::Demote => 1,
        JobOverrunAction::Stop => 2,
        _ => 0,
    });
    for octets in [client.0.as_bytes(), request.name.as_bytes(), request.operation.as_bytes(), attachment] {
        push_octets(&mut out, octets);
    }
    out
}

pub(super) struct Fields<'r>(pub(super) &'r [u8]);

impl<'r> Fields<'r> {
    pub(super) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], BadRecord> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(BadRecord)?;
        self.0 = rest;
        Ok(*chunk)
    }

    pub(super) fn octet(&mut self) -> Result<u8, BadRecord> {
        self.chunk().map(|[octet]| octet)
    }

    pub(super) fn u32(&mut self) -> Result<u32, BadRecord> {
        self.chunk().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, BadRecord> {
        self.chunk().map(u64::from_be_bytes)
    }

    pub(super) fn octets(&mut self) -> Result<&'r [u8], BadRecord> {
        let length = usize::try_from(self.u32()?).map_err(|_| BadRecord)?;
        let (octets, rest) = self.0.split_at_checked(length).ok_or(BadRecord)?;
        self.0 = rest;
        Ok(octets)
    }

    pub(super) fn text(&mut self) -> Result<&'r str, BadRecord> {
        std::str::from_utf8(self.octets()?).map_err(|_| BadRecord)
    }

    fn core(&mut self) -> Result<Option<CoreId>, BadRecord> {
        match self.octet()? {
            0 => Ok(None),
            1 => Ok(Some(CoreId { host: HostId(self.u32()?), core: self.u32()? })),
            _ => Err(BadRecord),
        }
    }

    pub(super) fn end<T>(self, value: T) -> Result<T, BadRecord> {
        if self.0.is_empty() { Ok(value) } else { Err(BadRecord) }
    }
}

fn decode_promise(value: &[u8]) -> Result<SavedPromise, BadRecord> {
    let mut fields = Fields(value);
    let token = TaskToken(fields.chunk()?);
    let lease: Nanos = fields.u64()?;
    let (core, home) = (fields.core()?, fields.core()?);
    let mut times = [0; 6];
    for time in &mut times {
        *time = fields.u64()?;
    }
    let [execution, period, deadline, jitter, blocking, min_distance] = times;
    let timing = Timing { execution, period, deadline, jitter, blocking, min_interarrival: min_distance };
    timing.check().map_err(|_| BadRecord)?;
    let criticality = match fields.octet()? {
        0 => Criticality::Low,
        1 => Criticality::Normal,
        2 => Criticality::High,
        _ => return Err(BadRecord),
    };
    let pinned = fields.core()?;
    let overrun = match fields.octet()? {
        0 => JobOverrunAction::Report,
        1 => JobOverrunAction::Demote,
        2 => JobOverrunAction::Stop,
        _ => return Err(BadRecord),
    };
    let client = ClientName(fields.text()?.into());
    let (name, operation) = (fields.text()?.to_owned(), fields.text()?.to_owned());
    let attachment = fields.octets()?.into();
    let request =
        TaskRequest { name, operation, timing, criticality, pinned_core: pinned, lease, overrun_action: overrun };
    fields.end(SavedPromise { request, client, token, core, home, attachment })
}

/// Returns the number in the octets. Refuses numbers from 2^63 on, because no task id of the task
/// registry has the highest bit.
fn number(octets: [u8; 8]) -> Result<u64, BadRecord> {
    let number = u64::from_be_bytes(octets);
    if number < 1 << 63 { Ok(number) } else { Err(BadRecord) }
}

pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<CoresRecord, BadRecord> {
    match key {
        NUMBER_KEY => value.try_into().map_err(|_| BadRecord).and_then(number).map(CoresRecord::Number),
        SERVER_KEY => Ok(CoresRecord::Server(value.to_vec())),
        [PROMISE, task @ ..] => {
            let task = TaskId(task.try_into().map_err(|_| BadRecord).and_then(number)?);
            Ok(CoresRecord::Promise(task, decode_promise(value)?))
        }
        _ => Err(BadRecord),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn promise(home: Option<CoreId>) -> SavedPromise {
        let core = CoreId { host: HostId(3), core: 7 };
        let request = TaskRequest {
            name: "ä".to_owned(),
            operation: "read".to_owned(),
            timing: Timing::new(1_000, 1_000_000).with_deadline(500_000).with_jitter(9),
            criticality: Criticality::High,
            pinned_core: home,
            lease: 5,
            overrun_action: JobOverrunAction::Stop,
        };
        let client = ClientName("user 0".into());
        SavedPromise {
            request,
            client,
            token: TaskToken([9; 16]),
            core: Some(core),
            home,
            attachment: [1, 2][..].into(),
        }
    }

    #[test]
    fn records_decode_to_the_written_values() {
        for home in [None, Some(CoreId { host: HostId(0), core: u32::MAX })] {
            let (task, promise) = (TaskId(u64::MAX / 3), promise(home));
            let found = decode(&promise_key(task), &encode_promise(&promise));
            assert_eq!(found, Ok(CoresRecord::Promise(task, promise)));
        }
        assert_eq!(decode(NUMBER_KEY, &[0, 0, 0, 0, 0, 0, 1, 2]), Ok(CoresRecord::Number(0x102)));
        assert_eq!(decode(SERVER_KEY, &[1]), Ok(CoresRecord::Server(vec![1])));
    }

    #[test]
    fn shortened_and_longer_records_are_refused() {
        let (key, value) = (promise_key(TaskId(1)), encode_promise(&promise(None)));
        for length in 0..value.len() {
            assert_eq!(decode(&key, &value[..length]), Err(BadRecord), "{length}");
        }
        assert_eq!(decode(&key, &[&value[..], &[0]].concat()), Err(BadRecord));
        assert_eq!(decode(&key[..8], &value), Err(BadRecord));
        assert_eq!(decode(NUMBER_KEY, &[0; 7]), Err(BadRecord));
        assert_eq!(decode(NUMBER_KEY, &(1_u64 << 63).to_be_bytes()), Err(BadRecord));
        assert_eq!(decode(&promise_key(TaskId(1 << 63)), &value), Err(BadRecord));
    }

    proptest! {
        #[test]
        fn accepted_records_are_written_in_the_same_form(at in 0..200_usize, octet: u8) {
            let key = promise_key(TaskId(1));
            let mut value = encode_promise(&promise(Some(CoreId::default())));
            let at = at % value.len();
            value[at] = octet;
            if let Ok(CoresRecord::Promise(_, promise)) = decode(&key, &value) {
                prop_assert_eq!(encode_promise(&promise), value);
            }
        }
    }
}
