//! Event channels of TAO's Real-time Event Service and of CORBA's Event Service.

use corelane::{ObjectRef, Orb};
use corelane_services::events::corelane_events::DurableChannelRef;
use corelane_services::events::{
    cos_event_channel_admin as cos_admin, rtec_event_channel_admin as rtec_admin, rtec_event_comm::Event,
};

use super::options::DEFAULT_SERVER;
use crate::naming;

pub(super) enum Channel {
    Rtec(rtec_admin::EventChannelRef),
    Cos(cos_admin::EventChannelRef),
}

/// Returns the reference of a channel, without a check that the channel exists.
pub(super) fn channel_object(orb: &Orb, word: &str) -> Result<ObjectRef, String> {
    let is_name = word != "-" && !word.contains([':', '@']);
    let url = format!("corbaloc::1.2@{DEFAULT_SERVER}/{word}.rtec");
    let word = if is_name { &url } else { word };
    Ok(naming::object_of_word(orb, word)?.ok_or("the reference is nil")?)
}

pub(super) fn channel(orb: &Orb, word: &str) -> Result<Channel, String> {
    let object = channel_object(orb, word)?;
    let has = |id: &str| object.is_a(id).map_err(|exception| format!("the channel cannot be used: {exception}"));
    if has(rtec_admin::EventChannelRef::REPOSITORY_ID)? {
        return Ok(Channel::Rtec(rtec_admin::EventChannelRef::unchecked_narrow(&object)));
    }
    if has(cos_admin::EventChannelRef::REPOSITORY_ID)? {
        return Ok(Channel::Cos(cos_admin::EventChannelRef::unchecked_narrow(&object)));
    }
    Err("the object is not an event channel".to_owned())
}

/// Returns the durable channel that a word names: by its name at [`DEFAULT_SERVER`], by a
/// reference, or by a `corbaloc` URL, with or without the end `.rtec` of TAO's event service.
pub(super) fn durable_channel(orb: &Orb, word: &str) -> Result<DurableChannelRef, String> {
    let is_name = word != "-" && !word.contains([':', '@']);
    let url = format!("corbaloc::1.2@{DEFAULT_SERVER}/{word}");
    let word = if is_name { &url } else { word };
    let word = word.strip_suffix(".rtec").filter(|_| word.starts_with("corbaloc:")).unwrap_or(word);
    let object: ObjectRef = naming::object_of_word(orb, word)?.ok_or("the reference is nil")?;
    match object.is_a(DurableChannelRef::REPOSITORY_ID) {
        Ok(true) => Ok(DurableChannelRef::unchecked_narrow(&object)),
        Ok(false) => Err("the channel is not durable".to_owned()),
        Err(exception) => Err(format!("the channel cannot be used: {exception}")),
    }
}

pub(super) fn typed(event_type: i32, source: i32) -> Event {
    let mut event = Event::default();
    event.header.r#type = event_type;
    event.header.source = source;
    event
}

pub(super) fn message(error: impl std::fmt::Display) -> String {
    error.to_string()
}
