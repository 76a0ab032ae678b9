//! Serves an echo object, and prints its reference: the counterpart of an omniORB server in C++.

use corelane::SystemException;
use corelane_config::Configuration;
use guide::Echo;

corelane::include_idl!("echo");

// class Echo_i : public POA_Guide::Echo
struct Parrot;

impl Echo for Parrot {
    // char* say(const char* words) { return CORBA::string_dup(words); }
    fn say(&self, words: &str) -> Result<String, SystemException> {
        Ok(words.to_owned())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // CORBA::ORB_init(argc, argv): options from omniORB.cfg, the environment and the arguments
    let (configuration, _arguments) = Configuration::load("GUIDE_ORB", std::env::args().skip(1))?;
    let orb = configuration.builder()?.build()?;
    // orb->resolve_initial_references("RootPOA")
    let poa = orb.root_poa();
    // PortableServer::Servant_var<Echo_i> servant = new Echo_i();
    let servant = Echo::servant(Parrot);
    // poa->activate_object(servant); servant->_this()
    let object = poa.activate(&servant)?;
    // poa->the_POAManager()->activate()
    poa.manager().activate()?;
    // The omniINSPOA: corbaloc::1.2@127.0.0.1:2810/Echo
    orb.bind_corbaloc_key("Echo", &object)?;
    // orb->object_to_string(object)
    println!("{object}");
    // orb->run()
    orb.run();
    Ok(())
}
