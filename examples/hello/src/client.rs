//! Calls the echo object whose reference is the argument.

use corelane::Orb;
use example::EchoRef;

corelane::include_idl!("echo");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: hello-client REFERENCE")?;
    let orb = Orb::new()?;
    let echo: EchoRef = orb.string_to_reference(&address)?;
    println!("{}", echo.say("Hello, world")?);
    Ok(())
}
