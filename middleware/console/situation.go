package console

// situation is the meaning of an entry for a request that waits for it.
type situation string

const (
	situationHeld       situation = "held"
	situationRunning    situation = "running"
	situationUnanswered situation = "unanswered"
	situationUnknown    situation = "outcome-unknown"
	situationCooldown   situation = "cool-down"
	situationAnswer     situation = "stored-answer"
	situationStep       situation = "step"
	situationUnreadable situation = "unreadable"
)

// Label is its name on the page.
func (s situation) Label() string {
	return map[situation]string{
		situationHeld:       "Held",
		situationRunning:    "Running",
		situationUnanswered: "Being cleaned up",
		situationUnknown:    "Outcome unknown",
		situationCooldown:   "Cool-down",
		situationAnswer:     "Stored answer",
		situationStep:       "Step",
		situationUnreadable: "Unreadable",
	}[s]
}
