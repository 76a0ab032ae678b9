//! The servants of a channel's objects.

pub(super) mod cos;
mod durable;
mod federation;
pub(super) mod rtec;

use corelane::rt::RtClientPolicies;
use corelane::{Completion, Reference, SystemException, SystemExceptionKind as Kind};

use super::channel::SharedChannel;

fn system(kind: Kind, why: impl Into<String>) -> SystemException {
    SystemException::new(kind, 0, Completion::No).with_message(why.into())
}

/// Returns the peer's reference with the time-out of the channel's calls and with a separate
/// connection, so that calls of other peers neither delay the peer's events nor change their order.
/// Refuses a proxy of this channel, because the channel would push to itself for ever.
fn peer<R: Reference>(channel: &SharedChannel, reference: &R) -> Result<R, SystemException> {
    if channel.poa.reference_to_id(reference.as_object()).is_ok() {
        return Err(system(Kind::BadParam, "the peer is a proxy of this channel"));
    }
    let own = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
    let object = reference.as_object().with_rt_policies(&own)?;
    Ok(R::from_object(object).with_timeout(channel.config.misses.send_timeout))
}

fn nil_peer() -> SystemException {
    system(Kind::BadParam, "the reference is nil")
}
