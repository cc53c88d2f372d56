-- The events that tell which jobs somebody wants to stop: a restarted server looks for those of the jobs in hand.
CREATE INDEX events_cancel_asked ON events (job) WHERE kind = 'job cancel asked';
