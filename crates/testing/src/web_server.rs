//! A web server for tests and benchmarks, whose answers the caller chooses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// The longest body of a request, in bytes.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// A status, such as `200 OK`, with a body of JSON; `None` closes the connection without an answer.
pub type HttpAnswer = Option<(&'static str, Vec<u8>)>;

/// Serves HTTP on a free port of the loopback address, until the process ends; returns `host:port`. `answer` gets the first line,
/// such as `POST /path HTTP/1.1`, and the body of each request. Each connection has a thread of its own, so one that is not answered holds up no other.
///
/// # Errors
/// No port can be listened on.
pub fn serve_http<A>(answer: A) -> io::Result<String>
where
    A: Fn(&str, Vec<u8>) -> HttpAnswer + Send + Sync + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?.to_string();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // A connection that breaks is no error of the test.
            thread::spawn(move || drop(serve(stream, &*answer)));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&str, Vec<u8>) -> HttpAnswer) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        while reader.read_line(&mut line)? > 0 && !line.trim().is_empty() {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            line.clear();
        }
        if length > BODY_BYTES_MAX {
            return Err(io::Error::other("the body is too long"));
        }
        let mut body = vec![0; length as usize];
        reader.read_exact(&mut body)?;
        let Some((status, text)) = answer(first.trim_end(), body) else {
            return Ok(());
        };
        let length = text.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )?;
        stream.write_all(&text)?;
    }
}
