//! What the hello example's server would be without an ORB: a line comes in over TCP, and goes back with an exclamation mark. The benchmark `footprint`
//! takes its size off that of `hello-server`.

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
        // A client that goes away in the middle of a line is no reason to end.
        std::thread::spawn(move || serve(stream).ok());
    }
    Ok(())
}
