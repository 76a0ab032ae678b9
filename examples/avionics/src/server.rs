//! The server: a mission computer, and a store of maps, with an ORB each.
//!
//! ORBs share no threads and connections, so the call of a sensor never waits behind a block of a
//! map.

use std::sync::Arc;

use corelane::{Dispatch, ObjectRef, Orb, PoolConfig, Reference, Servant};
use corelane_rio::RioTransport;

use crate::avionics::{MapStore, MapStoreRef, MissionComputer, MissionComputerRef, RecorderRef};
use crate::computer::{Computer, Maps};
use crate::mission::{self, Mission};
use crate::{Form, Result, admission, link, priority, streams};

/// Serves until the standard input ends, so that the server ends with the process that started it.
/// With `is_linked`, the server is at the end of a [`link`].
pub(crate) fn run(recorder: &str, form: Form, is_linked: bool) -> Result<()> {
    // The threads of an ORB inherit the scheduling class of the thread that creates it, so the
    // class is set first.
    let scheduling = priority::raise(Some(priority::SERVER));
    let computer = Arc::new(Computer::new());
    let servant = Computer::servant_of(Arc::clone(&computer));
    let rio = is_linked.then(|| Arc::new(RioTransport::new(streams::config())));
    let (flight_orb, flight) = match &rio {
        Some(rio) => streams::serve(rio, &servant)?,
        None => serve("flight", "127.0.0.1", &servant)?,
    };
    priority::lower();
    let address = if is_linked { link::ADDRESS } else { "127.0.0.1" };
    let (bulk_orb, maps) = serve("bulk", address, &MapStore::servant(Maps::new()))?;

    // The connections of tasks would belong to no stream, so no tasks are admitted over a link.
    let admission = if is_linked { None } else { Some(admission::serve(&flight_orb)) };
    if let Some(Err(error)) = &admission {
        eprintln!("the tasks of clients are not admitted: {error}");
    }
    let admission = admission.and_then(std::result::Result::ok);
    let tasks = admission.as_ref().map(|admission| admission.reference());

    let recorder: RecorderRef = bulk_orb.string_to_reference(recorder)?;
    let mission = (form == Form::Events).then(|| {
        priority::raise(Some(priority::SERVER));
        let tasks = tasks.map(|tasks| (tasks.clone(), flight.clone()));
        let mission = Mission::serve(&flight_orb, &computer, tasks, &recorder, mission::MISSES);
        priority::lower();
        mission
    });
    let mission = mission.transpose()?;
    recorder.serves(
        Some(&MissionComputerRef::from_object(flight)),
        Some(&MapStoreRef::from_object(maps)),
        tasks.map(Reference::as_object),
        mission.as_ref().map(|mission| &mission.reference),
        &scheduling,
    )?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    mission.map_or(Ok(()), Mission::finish)?;
    rio.iter().for_each(|rio| streams::print(rio));
    Ok(())
}

fn serve(name: &str, address: &str, servant: &Servant) -> Result<(Orb, ObjectRef)> {
    let dispatch = Dispatch::LeaderFollowers { threads: 2 };
    let pool = PoolConfig::default().name(name).dispatch(dispatch);
    let orb = Orb::builder().pool(pool).listen(format!("tcp:{address}:0")).log_events().build()?;
    let object = orb.root_poa().activate(servant)?;
    orb.root_poa().manager().activate()?;
    Ok((orb, object))
}
