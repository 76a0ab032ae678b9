//! The commands `corelane events create` and `corelane events destroy`, which create and destroy
//! channels of a running server.

use std::io::Write;

use corelane::{Any, Orb, SystemExceptionKind};
use corelane_services::events::FACTORY_KEY;
use corelane_services::events::corelane_events::control::DestroyChannelError;
use corelane_services::events::corelane_events::{ControlRef, DurableChannelRef};
use corelane_services::events::lifecycle::cos_life_cycle::NameValuePair;
use corelane_services::events::lifecycle::cos_life_cycle::generic_factory::CreateObjectError;
use corelane_services::events::lifecycle::cos_naming::NameComponent;
use corelane_services::events::lifecycle::omni_events::EventChannelFactoryRef;

use super::channel::{Channel, channel, message};
use super::options::{CONTROL_KEY, DEFAULT_SERVER, EventsArguments};
use crate::naming::{self, control};
use crate::text::{excerpt, printable};

pub(super) fn create(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let orb = Orb::new().map_err(message)?;
    let factory: EventChannelFactoryRef = match &arguments.control {
        Some(path) => control::object_at(&orb, path, FACTORY_KEY)?,
        None => {
            let default = format!("corbaloc::1.2@{DEFAULT_SERVER}/{FACTORY_KEY}");
            let object = naming::object_of_word(&orb, arguments.at.as_deref().unwrap_or(&default))?;
            EventChannelFactoryRef::unchecked_narrow(&object.ok_or("the reference is nil")?)
        }
    };
    let key = [NameComponent { id: "EventChannel".to_owned(), kind: "object interface".to_owned() }];
    let value = Any::new(&arguments.channel).map_err(message)?;
    let mut criteria = vec![NameValuePair { name: "InsName".to_owned(), value }];
    if arguments.is_durable {
        let value = Any::new(&true).map_err(message)?;
        criteria.push(NameValuePair { name: "CorelaneDurable".to_owned(), value });
    }
    let created = factory.create_object(&key, &criteria);
    let channel = created.map_err(|error| match error {
        CreateObjectError::InvalidCriteria(_) => {
            format!("the name `{}` is in use or not permitted", excerpt(&arguments.channel))
        }
        CreateObjectError::CannotMeetCriteria(_) if arguments.is_durable => {
            "the server has no store for durable channels (`serve --store FILE`)".to_owned()
        }
        CreateObjectError::System(exception) if exception.kind() == SystemExceptionKind::NoPermission => {
            "the server's clients create no durable channels: use its control socket (`create --control PATH`)"
                .to_owned()
        }
        CreateObjectError::System(exception) if arguments.control.is_some() => control::explain(&exception),
        other => printable(&other.to_string()),
    })?;
    let channel = channel.ok_or("the factory returned nil")?;
    // A factory of another ORB ignores the criterion for durability, so the new channel is checked.
    if arguments.is_durable && !channel.is_a(DurableChannelRef::REPOSITORY_ID).map_err(message)? {
        return Err("the server made a channel that is not durable".to_owned());
    }
    let _ = writeln!(out, "{channel}");
    Ok(())
}

/// Destroys a channel: over the control socket of its server, or with the channel's operation
/// `destroy`.
pub(super) fn destroy(arguments: &EventsArguments) -> Result<(), String> {
    let orb = Orb::new().map_err(message)?;
    let Some(path) = arguments.control.as_deref() else {
        let destroyed = match channel(&orb, &arguments.channel)? {
            Channel::Rtec(channel) => channel.destroy(),
            Channel::Cos(channel) => channel.destroy(),
        };
        return destroyed.map_err(|exception| match exception.kind() {
            SystemExceptionKind::NoPermission => "the server's channels are not destroyed by clients".to_owned(),
            _ => message(exception),
        });
    };
    let control: ControlRef = control::object_at(&orb, path, CONTROL_KEY)?;
    control.destroy_channel(&arguments.channel).map_err(|error| match error {
        DestroyChannelError::NoChannel(_) => format!("the server has no channel `{}`", excerpt(&arguments.channel)),
        DestroyChannelError::System(exception) => control::explain(&exception),
    })
}
