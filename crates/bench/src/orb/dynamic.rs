//! Corelane's client with dynamic invocation, which builds each request from names, types and
//! values.

use std::time::Duration;

use corelane::dynamic::DynamicResponse;
use corelane::{Any, ObjectRef, Octets, TypeCode, Typed};
use corelane_sys::clock;

use super::generated::cubit::Mixed;
use super::servant::length;
use crate::Failure;
use crate::harness::MeasuredSubject;
use crate::operation::MeasuredOperation;
use crate::sample::{Samples, time_calls};

pub(crate) struct DynamicCalls {
    pub(crate) object: ObjectRef,
    pub(crate) operation: MeasuredOperation,
    pub(crate) server: u32,
}

impl DynamicCalls {
    fn calls(&self, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        match self.operation {
            MeasuredOperation::EmptyCall => time_calls(count, into, || self.nothing()),
            MeasuredOperation::Octet => self.echoes("echo_octet", &7_u8, count, into),
            MeasuredOperation::Short => self.echoes("echo_short", &-7_i16, count, into),
            MeasuredOperation::Long => self.echoes("echo_long", &70_000_i32, count, into),
            MeasuredOperation::Struct => self.echoes("echo_struct", &Mixed { o: 1, l: 2, s: 3 }, count, into),
            MeasuredOperation::Longs(length) | MeasuredOperation::IntoLongs(length) => {
                let sent: Vec<i32> = (0..length).map(|number| number as i32).collect();
                self.echoes("echo_longs", &sent, count, into)
            }
            MeasuredOperation::Structs(length) | MeasuredOperation::IntoStructs(length) => {
                let sent: Vec<Mixed> = (0..length).map(|number| Mixed { o: 1, l: number as i32, s: 3 }).collect();
                self.echoes("echo_structs", &sent, count, into)
            }
            MeasuredOperation::Octets(length) | MeasuredOperation::LentOctets(length) => {
                let sent = Octets::from((0..length).map(|number| number as u8).collect::<Vec<u8>>());
                self.echoes("echo_octets", &sent, count, into)
            }
            MeasuredOperation::String(length) => self.echoes("echo_string", &"x".repeat(length), count, into),
            MeasuredOperation::TakeLongs(elements) => {
                let sent: Vec<i32> = (0..elements).map(|number| number as i32).collect();
                self.returns("take_longs", &sent, &length(elements), count, into)
            }
            MeasuredOperation::TakeOctets(elements) | MeasuredOperation::TakeLentOctets(elements) => {
                let sent = Octets::from((0..elements).map(|number| number as u8).collect::<Vec<u8>>());
                self.returns("take_octets", &sent, &length(elements), count, into)
            }
            MeasuredOperation::Oneway => time_calls(count, into, || {
                let sent = self.object.request("take_octet").input(Any::new(&7_u8)?).send_oneway();
                Ok(sent?)
            }),
        }
    }

    fn nothing(&self) -> Result<(), Failure> {
        answered(self.object.request("echo_nothing").returns(TypeCode::VOID).invoke()).map(|_| ())
    }

    fn echoes<T: Typed + PartialEq>(
        &self,
        name: &str,
        sent: &T,
        count: usize,
        into: &mut Samples,
    ) -> Result<Duration, Failure> {
        self.returns(name, sent, sent, count, into)
    }

    fn returns<T: Typed, R: Typed + PartialEq>(
        &self,
        name: &str,
        sent: &T,
        expected: &R,
        count: usize,
        into: &mut Samples,
    ) -> Result<Duration, Failure> {
        time_calls(count, into, || {
            let request = self.object.request(name).input(Any::new(sent)?).returns(R::type_code());
            let back: R = answered(request.invoke())?.result.extract()?;
            if back == *expected { Ok(()) } else { Err(Failure::new("the reply is not what was sent")) }
        })
    }
}

fn answered<E: std::fmt::Display>(response: Result<DynamicResponse, E>) -> Result<DynamicResponse, Failure> {
    response.map_err(|error| Failure::new(error.to_string()))
}

impl MeasuredSubject for DynamicCalls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.calls(warm_up, &mut Samples::with_capacity(warm_up))?;
        if !self.operation.is_oneway() {
            return self.calls(count, into);
        }
        // The reply to `nothing` shows that the server has dispatched the oneways before it, which
        // have no replies.
        self.nothing()?;
        let began = clock::now();
        self.calls(count, into)?;
        self.nothing()?;
        Ok(began.elapsed())
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::LOOPBACK;
    use crate::orb::client::object;
    use crate::orb::generated::cubit::Target;
    use crate::orb::servant::Echo;
    use crate::orb::server::start_orb;
    use crate::orb::{ServerArchitecture, client_orb};

    #[test]
    fn dynamic_invocation_calls_every_operation_and_verifies_the_answer() {
        let orb = start_orb(ServerArchitecture::PerConnection, LOOPBACK).unwrap();
        let id = orb.root_poa().activate_object(&Target::servant(Echo)).unwrap();
        orb.root_poa().manager().activate().unwrap();
        let text = orb.root_poa().id_to_reference(&id).unwrap().to_string();
        let client = client_orb(0).unwrap();
        for operation in [
            MeasuredOperation::EmptyCall,
            MeasuredOperation::Octet,
            MeasuredOperation::Short,
            MeasuredOperation::Long,
            MeasuredOperation::Struct,
            MeasuredOperation::Longs(3),
            MeasuredOperation::Structs(3),
            MeasuredOperation::Octets(3),
            MeasuredOperation::String(3),
            MeasuredOperation::TakeLongs(3),
            MeasuredOperation::TakeOctets(3),
            MeasuredOperation::Oneway,
        ] {
            let object = object(&client, &text).unwrap();
            let mut calls = DynamicCalls { object, operation, server: 1 };
            let mut samples = Samples::with_capacity(4);
            calls.run(1, 4, &mut samples).unwrap();
            assert_eq!(samples.len(), 4, "{operation}");
        }
    }
}
