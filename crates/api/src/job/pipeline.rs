//! Pipelines: programs that one attempt runs together on one node (Clustera, section 3.4).

use crate::AttemptLimits;
use crate::job::resources::GenericResources;
use crate::task::{
    PIPELINE_PROGRAMS_MAX, PIPELINE_STREAMS_MAX, RunTask, TASK_FILES_MAX, TaskFile, TaskFileError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// A file that one program of a pipeline writes and another reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PipelineEdge {
    /// Position of the program that writes it, in [`RunTask::programs`].
    pub writer: usize,
    /// Position among the writer's outputs.
    pub output: usize,
    /// Position of the program that reads it.
    pub reader: usize,
    /// Position among the reader's inputs.
    pub input: usize,
    /// True if both run at the same time: it is the standard output of one, or an output that this one writes by name as a
    /// stream; and the standard input of the other, or such an input.
    pub streams: bool,
}

impl RunTask {
    /// Returns all programs of its pipeline, itself first.
    pub fn programs(&self) -> impl Iterator<Item = &RunTask> {
        std::iter::once(self).chain(&self.pipeline)
    }

    /// Returns the slots of one node that it takes: the cores of all programs of its widest phase.
    pub fn slots(&self) -> u32 {
        let mut phases: BTreeMap<u32, u32> = BTreeMap::new();
        for program in self.programs() {
            let cores = phases.entry(program.phase).or_default();
            *cores = cores.saturating_add(program.cores.max(1));
        }
        phases.into_values().max().unwrap_or_default()
    }

    /// Returns the positions of the programs of each phase of a checked pipeline.
    pub fn phases(&self) -> Vec<Range<usize>> {
        let mut phases: Vec<Range<usize>> = Vec::new();
        let mut last = None;
        for (position, program) in self.programs().enumerate() {
            match phases.last_mut().filter(|_| last == Some(program.phase)) {
                Some(phase) => phase.end = position + 1,
                None => phases.push(position..position + 1),
            }
            last = Some(program.phase);
        }
        phases
    }

    /// Returns whether it needs more of its node than one slot.
    pub fn is_demanding(&self) -> bool {
        let has_resources = self.programs().any(|program| !program.resources.is_none());
        self.memory_bytes > 0 || self.architecture.is_some() || self.slots() > 1 || has_resources
    }

    /// Returns the generic resources of one node that it takes: those of all its programs.
    pub fn resources_of_all(&self) -> GenericResources {
        let mut sum = self.resources.clone();
        self.pipeline.iter().for_each(|program| sum.add(&program.resources));
        sum
    }

    /// Returns the files that programs of the pipeline pass to each other.
    pub fn edges(&self) -> Vec<PipelineEdge> {
        let mut writers: BTreeMap<&Path, (usize, usize)> = BTreeMap::new();
        for (writer, program) in self.programs().enumerate() {
            for (output, file) in program.outputs.iter().enumerate() {
                writers.insert(&file.path, (writer, output));
            }
        }
        let (mut edges, programs) = (Vec::new(), self.programs().collect::<Vec<_>>());
        for (reader, program) in self.programs().enumerate().filter(|_| !self.pipeline.is_empty()) {
            for (input, file) in program.inputs.iter().enumerate() {
                let Some((writer, output)) = writers.get(file.path.as_path()).copied() else { continue };
                let takes_stream = program.reads_stream(file);
                let wrote = programs.get(writer).filter(|wrote| wrote.phase == program.phase);
                let streams = wrote.is_some_and(|wrote| takes_stream && wrote.writes_stream(output));
                edges.push(PipelineEdge { writer, output, reader, input, streams });
            }
        }
        // A program of the same phase that needs the finished file finds no pipe in its place.
        let is_file = |edge: &&PipelineEdge| {
            let (writer, reader) = (programs[edge.writer], programs[edge.reader]);
            !edge.streams && writer.phase == reader.phase && writer.outputs[edge.output].stream
        };
        let files: BTreeSet<(usize, usize)> =
            edges.iter().filter(is_file).map(|edge| (edge.writer, edge.output)).collect();
        edges.iter_mut().for_each(|edge| edge.streams &= !files.contains(&(edge.writer, edge.output)));
        edges
    }

    /// Returns whether an input may be a stream.
    pub fn reads_stream(&self, input: &TaskFile) -> bool {
        input.stream || self.stdin.as_ref() == Some(&input.name)
    }

    /// Returns whether the output at a position may be a stream.
    pub fn writes_stream(&self, output: usize) -> bool {
        let output = self.outputs.get(output);
        output.is_some_and(|output| output.stream || self.stdout.as_ref() == Some(&output.name))
    }

    /// Returns an error for programs that cannot run as one pipeline.
    pub(crate) fn check_pipeline(&self) -> Result<(), TaskFileError> {
        let is_alone = self.pipeline.is_empty();
        if is_alone && (self.phase > 0 || self.file_memory_bytes > 0) {
            return Err(TaskFileError::PhaseOfOne);
        }
        if is_alone {
            return Ok(());
        }
        let count = 1 + self.pipeline.len();
        if count > PIPELINE_PROGRAMS_MAX {
            return Err(TaskFileError::TooManyPrograms { count });
        }
        if self.words.is_empty() {
            return Err(TaskFileError::FirstOfPipeline);
        }
        let files = self.programs().map(|program| program.inputs.len() + program.outputs.len()).sum();
        if files > TASK_FILES_MAX {
            return Err(TaskFileError::TooMany { count: files });
        }
        let streams = self.programs().map(|program| program.named_streams().count()).sum();
        if streams > PIPELINE_STREAMS_MAX {
            return Err(TaskFileError::TooManyStreams { count: streams, max: PIPELINE_STREAMS_MAX });
        }
        self.pipeline.iter().try_for_each(|program| program.check_member(self))?;
        let mut paths = BTreeSet::new();
        for output in self.programs().flat_map(|program| &program.outputs) {
            if !paths.insert(&output.path) {
                return Err(TaskFileError::PathTaken { path: output.path.clone() });
            }
        }
        self.check_phases()?;
        match self.edge_of_circle() {
            Some(file) => Err(TaskFileError::Circle { path: file.path.clone() }),
            None => Ok(()),
        }
    }

    /// Checks that phases count from 0 along the programs, that none reads a file of a later phase, and that files in
    /// memory fit in the claim.
    fn check_phases(&self) -> Result<(), TaskFileError> {
        let phases: Vec<u32> = self.programs().map(|program| program.phase).collect();
        let is_next = |pair: &[u32]| pair[1] == pair[0] || Some(pair[1]) == pair[0].checked_add(1);
        if phases[0] != 0 || !phases.windows(2).all(is_next) {
            return Err(TaskFileError::PhaseOrder);
        }
        let edges = self.edges();
        if let Some(edge) = edges.iter().find(|edge| phases[edge.writer] > phases[edge.reader]) {
            let input = self.programs().nth(edge.reader).and_then(|reader| reader.inputs.get(edge.input));
            let path = input.map(|input| input.path.clone()).unwrap_or_default();
            return Err(TaskFileError::Circle { path });
        }
        let files = self.programs().fold(0_u64, |sum, next| sum.saturating_add(next.file_memory_bytes));
        match files > self.memory_bytes {
            true => Err(TaskFileError::FileMemory { needs_bytes: files, claim_bytes: self.memory_bytes }),
            false => Ok(()),
        }
    }

    /// Checks a program that is not the first: it has no fields that hold for the whole job.
    fn check_member(&self, first: &RunTask) -> Result<(), TaskFileError> {
        if self.words.is_empty() {
            return Err(TaskFileError::NoProgram);
        }
        let whole_job = [
            (!self.pipeline.is_empty(), "a pipeline of its own"),
            (!self.shipped.is_empty(), "shipped files"),
            (!self.pinned.is_empty(), "stored files"),
            (self.memory_bytes > 0, "a memory claim"),
            (self.architecture.is_some(), "an architecture"),
            (!self.removes.is_empty(), "files to remove"),
            (self.retries > 0, "retries"),
            (self.env_file.is_some() && self.env_file != first.env_file, "another environment file"),
        ];
        match whole_job.into_iter().find(|(has, _)| *has) {
            Some((_, field)) => Err(TaskFileError::OfPipeline { program: self.words[0].clone(), field }),
            None => self.check_own_files(),
        }
    }

    /// Returns an input within the pipeline whose reader must end before it starts.
    fn edge_of_circle(&self) -> Option<&TaskFile> {
        let edges = self.edges();
        let count = 1 + self.pipeline.len();
        let mut waits = vec![0_usize; count];
        edges.iter().for_each(|edge| waits[edge.reader] += 1);
        let mut by_writer: Vec<Vec<PipelineEdge>> = vec![Vec::new(); count];
        edges.iter().for_each(|edge| by_writer[edge.writer].push(*edge));
        let mut free: Vec<usize> = (0..count).filter(|program| waits[*program] == 0).collect();
        while let Some(program) = free.pop() {
            for edge in &by_writer[program] {
                waits[edge.reader] -= 1;
                if waits[edge.reader] == 0 {
                    free.push(edge.reader);
                }
            }
        }
        let left = edges.iter().find(|edge| waits[edge.reader] > 0 && waits[edge.writer] > 0)?;
        self.programs().nth(left.reader)?.inputs.get(left.input)
    }

    /// Returns whether its limits hold for all processes of an attempt together, so that it cannot share one.
    pub fn is_limited_as_a_whole(&self) -> bool {
        let AttemptLimits { memory_bytes, disk_bytes, processes, .. } = *self.limits;
        memory_bytes.is_some() || disk_bytes.is_some() || processes.is_some()
    }
}
