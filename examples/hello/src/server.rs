//! Serves an echo object and prints its reference, the argument of hello-client.

use corelane::{Orb, SystemException};
use example::Echo;

corelane::include_idl!("echo");

/// The servant.
struct Parrot;

impl Echo for Parrot {
    fn say(&self, words: &str) -> Result<String, SystemException> {
        Ok(format!("{words}!"))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
    let echo = orb.root_poa().activate(&Echo::servant(Parrot))?;
    orb.root_poa().manager().activate()?;
    println!("{echo}");
    orb.run();
    Ok(())
}
