//! The hello example's server without an ORB: returns each line over TCP with an exclamation mark.
//! The test and the benchmark of the footprint subtract the size of this program from the size of
//! `hello-server`.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut output = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        writeln!(output, "{}!", line?)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        // Errors are ignored: a client may disconnect in the middle of a line.
        std::thread::spawn(move || serve(stream).ok());
    }
    Ok(())
}
