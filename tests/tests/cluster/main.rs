//! A server and nodes: the protocol, its gate, tokens, databases, flows of jobs, intermediate files, who may do what.

mod cancels;
mod causes;
mod cluster;
mod drain;
mod elastic;
mod flow_cases;
mod flows;
mod intermediate_files;
mod malformed_requests;
mod odd_nodes;
mod one_task;
mod own_tokens;
mod peer_reports;
mod postgres_cluster;
mod protocol;
mod races;
mod racks;
mod roots;
mod sandbox;
mod security;
mod sharing;
mod shipped;
mod slow_postgres;
mod speculation;
mod strangers;
mod web_pages;
