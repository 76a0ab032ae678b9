//! The command `corelane events push`, which pushes events with texts as their values.

use std::io::Write;

use corelane::{Any, Orb};
use corelane_services::events::rtec_event_channel_admin::{Publication, SupplierQOS};

use super::channel::{Channel, channel, durable_channel, message, typed};
use super::options::EventsArguments;

const DEFAULT_TYPE: i32 = 16;
const DEFAULT_SOURCE: i32 = 1;
const DEFAULT_TTL: i32 = 1;

pub(super) fn run(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let orb = Orb::new().map_err(message)?;
    let values = arguments.texts.iter().map(Any::new).collect::<Result<Vec<Any>, _>>().map_err(message)?;
    if arguments.is_acknowledged {
        return push_acknowledged(&orb, arguments, values, out);
    }
    match channel(&orb, &arguments.channel)? {
        Channel::Cos(channel) => {
            let admin = channel.for_suppliers().map_err(message)?.ok_or("the channel has no suppliers")?;
            let proxy = admin.obtain_push_consumer().map_err(message)?.ok_or("the channel has no proxy")?;
            proxy.connect_push_supplier(None).map_err(message)?;
            for value in &values {
                proxy.push(value).map_err(message)?;
            }
            proxy.disconnect_push_consumer().map_err(message)
        }
        Channel::Rtec(channel) => {
            let event_type = arguments.types.first().copied().unwrap_or(DEFAULT_TYPE);
            let mut event = typed(event_type, arguments.source.unwrap_or(DEFAULT_SOURCE));
            event.header.ttl = arguments.ttl.unwrap_or(DEFAULT_TTL);
            let publications = vec![Publication { event: event.clone(), ..Publication::default() }];
            let admin = channel.for_suppliers().map_err(message)?.ok_or("the channel has no suppliers")?;
            let proxy = admin.obtain_push_consumer().map_err(message)?.ok_or("the channel has no proxy")?;
            let qos = SupplierQOS { publications, is_gateway: false };
            proxy.connect_push_supplier(None, &qos).map_err(message)?;
            for value in values {
                let mut event = event.clone();
                event.data.any_value = value;
                proxy.push(&[event]).map_err(message)?;
            }
            // The reply to this two-way call shows that the server has received the earlier
            // oneways.
            proxy.disconnect_push_consumer().map_err(message)
        }
    }
}

/// Pushes to a durable channel, and prints the number of each event after its commit.
fn push_acknowledged(
    orb: &Orb,
    arguments: &EventsArguments,
    values: Vec<Any>,
    out: &mut dyn Write,
) -> Result<(), String> {
    let channel = durable_channel(orb, &arguments.channel)?;
    let is_typed = !arguments.types.is_empty() || arguments.source.is_some() || arguments.ttl.is_some();
    for value in values {
        let number = if is_typed {
            let event_type = arguments.types.first().copied().unwrap_or(DEFAULT_TYPE);
            let mut event = typed(event_type, arguments.source.unwrap_or(DEFAULT_SOURCE));
            event.header.ttl = arguments.ttl.unwrap_or(DEFAULT_TTL);
            event.data.any_value = value;
            channel.publish_event(&event)
        } else {
            channel.publish(&value)
        };
        let number = number.map_err(message)?;
        let _ = writeln!(out, "{number}").and_then(|()| out.flush());
    }
    Ok(())
}
