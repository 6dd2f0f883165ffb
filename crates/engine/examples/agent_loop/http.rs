//! As much of HTTP as two ends of one program need: a JSON body there, a JSON body back, one
//! request per connection. Entry points: [`serve`] and [`post`].

use std::io;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The longest body that is read.
const LONGEST: usize = 1 << 20;

/// Answers every request with a status and a body of the function's, one after the other.
pub(crate) async fn serve(
    listener: TcpListener,
    answer: fn(&Value) -> (u16, Value),
) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let mut stream = BufReader::new(stream);
        let (_, body) = read(&mut stream).await?;
        let (status, answer) = answer(&body);
        let body = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await?;
        stream.shutdown().await?;
    }
}

/// Posts a body and returns the answer; one that is no success is an error.
pub(crate) async fn post(address: &str, path: &str, body: &Value) -> io::Result<Value> {
    let body = body.to_string();
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    let (first, answer) = read(&mut stream).await?;
    if first.starts_with("HTTP/1.1 200 ") {
        Ok(answer)
    } else {
        Err(io::Error::other(answer.to_string()))
    }
}

/// Reads the first line and the body of a message.
async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<(String, Value)> {
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    if length > LONGEST {
        return Err(io::Error::other("the body is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((first, serde_json::from_slice(&body)?))
}
