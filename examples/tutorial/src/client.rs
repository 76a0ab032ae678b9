//! Fills the tank whose address is the argument, does not wait for long, and stops the pump.

use std::time::Duration;

use corelane::rt::{RtConfig, SchedulingClass};
use corelane::{Orb, SystemExceptionKind};
use plant::TankRef;

corelane::include_idl!("tank");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: tank-client REFERENCE")?;
    let real_time = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(real_time).build()?;
    let tank: TankRef = orb.string_to_reference(&address)?;
    println!("level: {} litres", tank.level()?);

    match tank.with_timeout(Duration::from_millis(200)).fill(1_000_000) {
        Err(exception) if exception.kind() == SystemExceptionKind::Timeout => println!("not full yet: {exception}"),
        other => other?,
    }

    orb.real_time().current()?.set_priority(30000)?;
    println!("stopped at priority {}", tank.stop()?);
    Ok(())
}
