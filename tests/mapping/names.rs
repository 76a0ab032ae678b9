//! Operations whose parameters have the names of variables in the generated code.

use corelane::{Orb, SystemException};

corelane::include_idl!("names");

use names::*;

struct Mine;

impl Locals for Mine {
    fn next(&self, n: i32) -> Result<(bool, Longs, bool), locals::NextError> {
        if n < 0 {
            return Err(Refused.into());
        }
        Ok((true, vec![n], false))
    }

    fn plain(&self) -> Result<(bool, Longs), SystemException> {
        Ok((true, vec![1, 2]))
    }

    fn nothing(&self) -> Result<(i32, i32), locals::NextError> {
        Ok((3, 4))
    }

    fn all(
        &self,
        call: i32,
        servant: i32,
        operation: i32,
        d: i32,
        e: i32,
        len: i32,
        list: i32,
    ) -> Result<(i32, i32, i32, i32, i32), locals::NextError> {
        Ok((call + servant + operation + d + e, len, list, 8, 9))
    }
}

#[test]
fn parameters_named_like_generated_variables_keep_their_values() {
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let object = server.root_poa().activate(&Locals::servant(Mine)).unwrap();
    server.root_poa().manager().activate().unwrap();
    let client = Orb::new().unwrap();
    let locals: LocalsRef = client.string_to_reference(&object.to_string()).unwrap();
    assert_eq!(locals.next(7).unwrap(), (true, vec![7], false));
    assert!(matches!(locals.next(-1), Err(locals::NextError::Refused(_))));
    assert_eq!(locals.plain().unwrap(), (true, vec![1, 2]));
    assert_eq!(locals.nothing().unwrap(), (3, 4));
    assert_eq!(locals.all(1, 2, 3, 4, 5, 6, 7).unwrap(), (15, 6, 7, 8, 9));
}
