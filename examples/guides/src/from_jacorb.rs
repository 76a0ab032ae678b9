//! Calls an echo object that it finds by name: the counterpart of a JacORB client in Java.

use corelane_config::Configuration;
use guide::EchoRef;

corelane::include_idl!("echo");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // ORB.init(args, props): options from jacorb.properties and the arguments, with ORBInitRef.NameService
    let (configuration, _arguments) = Configuration::load("GUIDE_ORB", std::env::args().skip(1))?;
    let orb = configuration.builder()?.build()?;
    // NamingContextExtHelper.narrow(orb.resolve_initial_references("NameService")).resolve_str("shop/echo"),
    // EchoHelper.narrow(object)
    let echo: EchoRef = orb.string_to_reference("corbaname:rir:#shop/echo")?;
    // System.out.println(echo.say("Hello"))
    println!("{}", echo.say("Hello")?);
    Ok(())
}
